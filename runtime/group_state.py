"""What the controller knows of the process groups of one mesh: how often they were made anew, and where they meet."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from .engines.spec import Backend

MOST_RENEWALS = 24
"""How often groups are renewed before they are made anew: each time leaves them threads and sockets that have ended."""


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
        self.num_renewals = 0
        """How often they were renewed since they were made anew: 0 where they are new, or as at birth."""
        self.whole_since = 0
        """The generation in which all were last made anew: what was built on those before has no groups."""
        self.is_cut = False
        """Whether connections of theirs were broken off since they were made."""
        self.regrouping = threading.Lock()  # a cell in the background may mend them while another heals the mesh

    def begin(self, renews: bool) -> int | None:
        """The next generation begins. The one since which all ranks have had the groups that are to be renewed.

        None where all groups are to be made anew.
        """
        self.generation += 1
        self.is_cut = False
        self.num_renewals = self.num_renewals + 1 if renews else 0
        if not renews:
            self.whole_since = self.generation
        return self.whole_since if renews else None

    @property
    def can_renew(self) -> bool:
        """Is there still room in them?"""
        return self.num_renewals < MOST_RENEWALS

    def renumber(self, kept: Mapping[int, int]) -> None:
        """The mesh was resized: its ranks have other numbers, by their old ones; those left out have ended."""
        self.store_rank = kept.get(self.store_rank, 0)
        self.ports = {kept[rank]: ports for rank, ports in self.ports.items() if rank in kept}
