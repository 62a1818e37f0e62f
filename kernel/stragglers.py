"""Ranks for which the others of a running cell wait again and again: told in the cell, once for each line of theirs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from .collectives import MeshLedger
from .latecomers import Late
from .ledger import Finding
from .waited import Tell, Waited

MUCH = 0.25
"""The part of the time that must be lost to be told unasked; `%mesh ledger` tells of less."""

_Habit = tuple[tuple[int, ...], str]


class StragglerWatch:
    """Looks at each ledger that somebody has asked for anyway, while a cell or calls run.

    What is seen twice in succession is told: of a few collectives one rank may be the last by chance. `usual` gives
    the line at which a rank mostly was when it did not wait, if there is one.
    """

    def __init__(self, run: Waited, tell: Tell, usual: Callable[[int], str] = lambda rank: "") -> None:
        self._run = run
        self._tell = tell
        self._usual = usual
        self._seen: set[_Habit] = set()
        self._told: set[_Habit] = set()

    def findings(self, ledger: MeshLedger) -> Sequence[Finding]:
        """Those of the ledger, after a look at who comes late."""
        late = {(each.ranks, each.what): each for each in self._late(ledger)}
        for habit in self._seen & late.keys() - self._told:
            self._told.add(habit)
            self._tell(habit[0], "◷", late[habit].text + self._whereabouts(habit[0]))
        self._seen = set(late)
        return ledger.findings

    def _late(self, ledger: MeshLedger) -> list[Late]:
        return [late for late in ledger.late_within(time.monotonic() - self._run.started) if late.part >= MUCH]

    def _whereabouts(self, ranks: Sequence[int]) -> str:
        """What they do meanwhile, where that is not what all do."""
        others = {self._usual(rank) for rank in self._run.owing if rank not in ranks}
        places = {self._usual(rank) for rank in ranks} - others - {""}
        it = "it is" if len(ranks) == 1 else "they are"
        return f"; {it} mostly at {places.pop()}" if len(places) == 1 else ""
