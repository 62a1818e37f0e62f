"""Looks at the processes of a mesh's ranks from outside: which do not move, and what each costs. No rank is asked."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from ..system.proc import Stat
from .rank_state import RankState
from .vitals import Halt, Vitals


class Checkup:
    """What was seen when the ranks were last looked at."""

    def __init__(self) -> None:
        self.stats: Mapping[int, Stat] = {}
        """Of each living rank."""
        self._vitals = Vitals()
        self._lock = threading.Lock()  # cells in the background look too

    def step(self, now: float, states: Mapping[int, RankState], stats: Mapping[int, Stat]) -> dict[int, Halt]:
        """Take in what living ranks are at `now`; those that do not move, which their states say too until the next."""
        with self._lock:
            halts = self._vitals.step(now, stats)
            self.stats = stats
        for rank, state in states.items():
            state.halt = halts.get(rank)
        return halts
