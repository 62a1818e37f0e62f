"""Actors that hang in a collective while a plain cell waits for them: the cell says who waits, where, and for whom."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ..kernel.hangs import ADVICE_ON_CALLS, HangWatch, Tell
from ..kernel.ledger import Finding
from ..kernel.mesh import Mesh
from .book import Book
from .faults import actors_at_work


@dataclass(frozen=True, slots=True)
class _Calls:
    """The calls of actors that a mesh works on."""

    mesh: Mesh
    started: float

    @property
    def owing(self) -> list[int]:
        return actors_at_work(self.mesh)

    def miss(self, ranks: set[int]) -> None:
        """Who has called a dead actor is told by its call."""


class HangingCalls:
    """Looks after what the running cell waits for."""

    def __init__(self, book: Book, tell: Tell) -> None:
        self._book = book
        self._tell = tell
        self._watches: dict[Mesh, HangWatch] = {}

    def forget(self) -> None:
        """A cell begins."""
        self._watches.clear()

    def look(self) -> None:
        """To be called again and again while the cell waits; it asks ranks only when their calls take seconds."""
        now = time.monotonic()
        for mesh in list(self._book.meshes.values()):
            if mesh.is_down or not actors_at_work(mesh):
                self._watches.pop(mesh, None)
            else:
                watch = self._watches.get(mesh) or self._watch(mesh, now)
                watch(now)

    def _watch(self, mesh: Mesh, now: float) -> HangWatch:
        self._watches[mesh] = watch = HangWatch(
            _Calls(mesh, now), partial(_findings, mesh), mesh.roster.dead, self._tell, ADVICE_ON_CALLS
        )
        return watch


def _findings(mesh: Mesh, ranks: Sequence[int]) -> Sequence[Finding]:
    return mesh.ledger(ranks, timeout=0.2).findings
