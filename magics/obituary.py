"""Ranks that died while the notebook was idle: said once, at the beginning of the next cell on their mesh."""

from __future__ import annotations

import time
from collections.abc import Iterable

from ..kernel.mesh import Mesh
from ..kernel.values.rows import seconds_text
from ..runtime.controller.rank_state import RankState
from ..runtime.controller.roster import Roster
from ..runtime.ranges import ranks_text

Life = tuple[int, int, int]
"""A mesh by its number, a rank, a process: a rank that was brought back may die again."""


class Obituaries:
    """Remembers whose death was told."""

    def __init__(self) -> None:
        self._told: set[Life] = set()

    def lines(self, mesh: Mesh) -> list[str]:
        """One line for each kind of end that nobody was told of yet; mostly none."""
        if mesh.is_down:
            return []
        roster = mesh.roster
        fresh = {(roster.mesh, state.rank, state.pid): state for state in roster.states.values() if state.died_idle}
        for life in self._told & fresh.keys():
            del fresh[life]
        self._told.update(fresh)
        by_end: dict[str, list[RankState]] = {}
        for state in fresh.values():
            by_end.setdefault(str(state.exit), []).append(state)
        return [_line(roster, end, states, time.monotonic()) for end, states in by_end.items()]

    def are_in(self, error: BaseException, mesh: Mesh) -> bool:
        """Whether ranks of this mesh have died as an error says that is shown to the user now; who so hears of it."""
        dead = [rank for rank in mesh.roster.dead() if mesh.roster.why_dead(rank).partition("\n")[0] in str(error)]
        self.note_told(mesh, dead)
        return bool(dead)

    def note_told(self, mesh: Mesh, ranks: Iterable[int]) -> None:
        """The user hears in another way what became of these ranks: of those that live, an end is still to be told."""
        dead = set(mesh.roster.dead()).intersection(ranks)
        self._told.update((mesh.roster.mesh, rank, mesh.roster.states[rank].pid) for rank in dead)


def _line(roster: Roster, end: str, states: list[RankState], now: float) -> str:
    is_one = len(states) == 1
    who = (
        roster.name_of(states[0].rank)
        if is_one
        else f"ranks {ranks_text(state.rank for state in states)}{_pids(states)}"
    )
    was = ("was " if is_one else "were ") if end.startswith("killed") else ""
    ago = now - max(state.since for state in states)
    back = f"`%mesh restart @dead` brings {'it' if is_one else 'them'} back"
    return f"note: {who} {was}{end} {seconds_text(ago, ago)} ago, while idle: {back}"


def _pids(states: Iterable[RankState]) -> str:
    pids = [str(state.pid) for state in states if state.pid]
    return f" (pids {' '.join(pids)})" if 0 < len(pids) <= 16 else ""
