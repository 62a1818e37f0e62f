"""What the controller knows of the process groups of one mesh: how often they were made anew, and where they meet."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from .engines.spec import Backend


class GroupState:
    """The process groups of all ranks of a mesh, as the controller has made them."""

    def __init__(self, backend: Backend) -> None:
        self.backend: Backend = backend
        self.generation = 0
        """Counts how often they were made anew."""
        self.store_rank = 0
        """The rank that serves the store at which they meet."""
        self.ports: dict[int, list[tuple[str, int]]] = {}
        """By rank, where they listened when that was last asked."""
        self.is_cut = False
        """Whether connections of theirs were broken off since they were made."""
        self.regrouping = threading.Lock()  # a cell in the background may mend them while another heals the mesh

    def renumber(self, kept: Mapping[int, int]) -> None:
        """The mesh was resized: its ranks have other numbers, by their old ones; those left out have ended."""
        self.store_rank = kept.get(self.store_rank, 0)
        self.ports = {kept[rank]: ports for rank, ports in self.ports.items() if rank in kept}
