"""What the controller knows of the process groups of one mesh: how often they were made anew, and where they meet."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Mapping

from ..engines.spec import Backend

MOST_RENEWALS = 32
"""How often a rank renews its groups at most: each time leaves it three threads and descriptors a group."""


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
        self.is_renewed = False
        """Whether they were renewed last, and not made anew."""
        self._worn: Counter[int] = Counter()  # by rank: how often its process has renewed them
        self.whole_since = 0
        """The generation in which all were last made anew: what was built on those before has no groups."""
        self.is_cut = False
        """Whether connections of theirs were broken off since they were made."""
        self.is_unsure = False
        """Whether some ranks were busy as others were last asked how many collectives they have issued."""
        self.destroyed: set[int] = set()
        """The ranks on which the last cell has left none: a script that it ran has destroyed them, as it ended."""
        self.regrouping = threading.Lock()  # a cell in the background may mend them while another heals the mesh

    def begin(self, ranks: Collection[int], renews: bool) -> int | None:
        """The next generation begins on these ranks. The one since which they have had the groups that they renew.

        None where all groups are to be made anew.
        """
        self.generation += 1
        self.is_cut, self.is_unsure, self.is_renewed = False, False, renews
        self.destroyed.clear()
        if not renews:
            self.whole_since = self.generation
            return None
        self._worn.update(ranks)
        return self.whole_since

    def note_destroyed(self, rank: int, are_gone: bool) -> None:
        """A cell has ended on this rank, and has left no groups there, or has."""
        if are_gone:
            self.destroyed.add(rank)
        elif self.destroyed:
            self.destroyed.discard(rank)

    def await_rest(self, seconds: float) -> None:
        """Wait so long at most for who makes them anew."""
        if self.regrouping.acquire(timeout=seconds):
            self.regrouping.release()

    @property
    def can_renew(self) -> bool:
        """May all ranks do so once more?"""
        return max(self._worn.values(), default=0) < MOST_RENEWALS

    def renew_processes(self, ranks: Collection[int]) -> None:
        """These ranks are new processes, in which nothing was left behind."""
        for rank in ranks:
            del self._worn[rank]
            self.destroyed.discard(rank)

    def renumber(self, kept: Mapping[int, int]) -> None:
        """The mesh was resized: its ranks have other numbers, by their old ones; those left out have ended."""
        self.store_rank = kept.get(self.store_rank, 0)
        self.ports = {kept[rank]: ports for rank, ports in self.ports.items() if rank in kept}
        self.destroyed = {kept[rank] for rank in self.destroyed if rank in kept}
        self._worn = Counter({kept[rank]: count for rank, count in self._worn.items() if rank in kept})
