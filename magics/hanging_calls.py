"""Actors that hang while a plain cell waits for them, in a collective or as they are stopped: the cell says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ..kernel.waiting.collectives import ledger_of
from ..kernel.waiting.halts import HaltWatch
from ..kernel.waiting.hangs import ADVICE_ON_BARE, ADVICE_ON_CALLS, HangWatch
from ..kernel.waiting.ledger import Finding
from ..kernel.waiting.queued import QueueWatch
from ..kernel.waiting.stragglers import StragglerWatch
from ..kernel.waiting.waited import Tell
from ..runtime.controller.long_calls import actors_at_work, behind
from ..runtime.controller.roster import Roster
from ..runtime.session import session
from ..runtime.wire.post import next_number


@dataclass(frozen=True, slots=True)
class _Calls:
    """The calls of actors that a mesh works on."""

    roster: Roster
    started: float

    @property
    def owing(self) -> list[int]:
        return actors_at_work(self.roster)

    def miss(self, ranks: set[int]) -> None:
        """Who has called a dead actor is told by its call."""


_Watches = tuple[QueueWatch, HaltWatch, HangWatch]


class HangingCalls:
    """Looks after what the running cell waits for, also on meshes that it has made by `spawn_procs`."""

    def __init__(self, tell: Tell, has_magics: Callable[[Roster], bool] = lambda roster: False) -> None:
        """`has_magics` says whether the magics know a mesh: what helps is another thing then."""
        self._tell = tell
        self._has_magics = has_magics
        self._watches: dict[Roster, _Watches] = {}
        self._since = 0
        """A number that the calls of the running cell exceed."""

    def forget(self) -> None:
        """A cell begins."""
        self._watches.clear()
        self._since = next_number()

    def look(self, age: float = 0.0) -> None:
        """To be called again and again while the cell waits; it asks ranks only when their calls take seconds.

        Calls that are seen for the first time have taken `age` seconds.
        """
        now = time.monotonic()
        for roster in list(session().root.rosters.values()):
            if roster.is_stopped or not actors_at_work(roster):
                self._watches.pop(roster, None)
            else:
                for watch in self._watches.get(roster) or self._watch(roster, now - age):
                    watch(now)

    def _watch(self, roster: Roster, started: float) -> _Watches:
        def look(ranks: Sequence[int]) -> Sequence[Finding]:
            return stragglers.findings(ledger_of(roster, ranks, timeout=0.2), time.monotonic())

        calls, is_bare = _Calls(roster, started), not self._has_magics(roster)
        stragglers = StragglerWatch(calls, self._tell, is_bare=is_bare)
        advice = ADVICE_ON_BARE if is_bare else ADVICE_ON_CALLS
        waits = QueueWatch(calls, partial(behind, roster, self._since), self._tell, "a call of this cell", advice)
        halts = HaltWatch(roster, calls, self._tell, is_bare=is_bare)
        self._watches[roster] = watches = waits, halts, HangWatch(calls, look, roster.dead, self._tell, advice)
        return watches
