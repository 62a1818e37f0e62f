"""Ranks that stop moving while a cell waits for them are told in the cell, and so is it when they go on."""

from __future__ import annotations

from collections.abc import Sequence

from ...runtime.controller.roster import Roster
from ...runtime.controller.vitals import PACE, SURE, Halt
from .waited import Tell, Waited


class HaltWatch:
    """Looks after the ranks that are waited for, as often as it is called but at a calm pace.

    `is_bare` says that `%mesh` does not know their mesh.
    """

    def __init__(self, roster: Roster, run: Waited, tell: Tell, *, is_bare: bool = False) -> None:
        self._roster = roster
        self._run = run
        self._tell = tell
        self._is_bare = is_bare
        self._next = run.started + PACE
        self._told: dict[int, Halt] = {}

    def __call__(self, now: float) -> None:
        """Tell what is new at `now`."""
        if now < self._next:
            return
        self._next = now + PACE
        halts = self._roster.look_at_vitals(now)
        owing = self._run.owing
        self._tell_halted({rank: halts[rank] for rank in owing if rank in halts and rank not in self._told}, now)
        self._tell_moving([rank for rank in self._told if rank in owing and rank not in halts], now)

    def _tell_halted(self, halts: dict[int, Halt], now: float) -> None:
        sure = {rank: halt for rank, halt in halts.items() if now - halt.since >= SURE or halt.kind == "asleep"}
        for kind in dict.fromkeys(halt.kind for halt in sure.values()):
            ranks = [rank for rank, halt in sure.items() if halt.kind == kind]
            self._tell(ranks, "‖", self._text(ranks, sure[ranks[0]]))
        self._told.update(sure)

    def _text(self, ranks: Sequence[int], halt: Halt) -> str:
        named = [self._roster.name_of(rank) for rank in ranks[:_MOST_NAMED]]
        if len(ranks) > _MOST_NAMED:
            named.append(f"{len(ranks) - _MOST_NAMED} more")
        pids = " ".join(str(self._roster.states[rank].pid) for rank in ranks)
        selector = "" if self._is_bare else str(ranks[0]) if len(ranks) == 1 else "@stuck"
        return f"{', '.join(named)} on host {self._roster.host_of(ranks[0])}: {halt}: {halt.advice(pids, selector)}"

    def _tell_moving(self, ranks: Sequence[int], now: float) -> None:
        halts = [self._told.pop(rank) for rank in ranks]
        if halts:
            self._tell(ranks, "▶", f"{'goes' if len(ranks) == 1 else 'go'} on after {now - halts[0].since:.0f} s")


_MOST_NAMED = 4
