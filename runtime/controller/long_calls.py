"""Calls of actors that take seconds, in a program that nobody looks after: it may wait for ranks that wait in vain.

Nothing is asked of ranks here: what looks closer stands above and is imported when the first call takes so long.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress

from ..errors import MeshbookError
from ..upstairs import unattended
from ..wire.reactor import Reactor
from .roster import Roster

PACE = 3.0
"""Seconds between two looks: a call that is at work in two of them takes long."""


def actors_at_work(roster: Roster) -> list[int]:
    """The ranks that work for calls of actors."""
    return [state.rank for state in roster.states.values() if {*state.open_calls} - state.main_calls]


def behind(roster: Roster, since: int) -> dict[int, str]:
    """The ranks that have not begun a call made `since` that number, each with what it works on instead.

    An actor takes one call after the other. What it works on was called before, which is no news among calls that are
    made together; that an actor works on a concurrent endpoint, or for another actor, is not known here.
    """
    found: dict[int, str] = {}
    for state in list(roster.states.values()):
        at_work: dict[int, str] = {}
        for call in list(state.open_calls):
            caller = roster.caller_of(call)
            turn = getattr(caller, "turn", -1)
            if turn == -1:
                continue
            if call < since:
                at_work.setdefault(turn, f"{getattr(caller, 'title', 'a call')}, called before it")
            elif turn in at_work:
                found[state.rank] = at_work[turn]
                break
    return found


class LongCalls:
    """Has a closer look, on a thread of its own, at meshes whose calls take long; ticks while there are any."""

    def __init__(self, reactor: Reactor, rosters: Mapping[int, Roster]) -> None:
        self._reactor = reactor
        self._rosters = rosters
        self._is_ticking = False
        self._former: set[tuple[int, int]] = set()
        self._looking: threading.Thread | None = None

    def begin(self) -> None:
        """A mesh has come; any thread may tell."""
        self._reactor.schedule(self._begin)

    def _begin(self) -> None:
        if not self._is_ticking and self._rosters:
            self._is_ticking = True
            self._reactor.later(PACE, self._tick)

    def _tick(self) -> None:
        self._is_ticking = False
        now = {(roster.mesh, call) for roster in list(self._rosters.values()) for call in _open_calls(roster)}
        if now & self._former and (self._looking is None or not self._looking.is_alive()):
            self._looking = threading.Thread(target=_look, name="meshbook-calls", daemon=True)
            self._looking.start()
        self._former = now
        self._begin()


def _open_calls(roster: Roster) -> set[int]:
    return {call for state in roster.states.values() for call in state.open_calls if call not in state.main_calls}


def _look() -> None:
    with suppress(MeshbookError, RuntimeError):  # the mesh has ended meanwhile, or the program with its loop
        unattended().look_at_calls()
