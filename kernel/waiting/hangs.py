"""Cells that wait for what will not come: told while they hang, and ended where it is certain.

A collective is told when some of its ranks have waited in it for seconds and others have not issued it. One that a dead
rank belongs to can never complete: that counts as a failure of the cell, and its ranks are released (`in_vain`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...runtime.ranges import named
from ..run import Run
from ..stopping.stopped import stop_watch
from .attention import Attention
from .halts import HaltWatch
from .ledger import Finding
from .queued import QueueWatch
from .stragglers import StragglerWatch
from .unfinished import UnfinishedWatch
from .waited import Tell, Waited

if TYPE_CHECKING:
    from ..mesh import Mesh

FIRST, FIRST_WITH_DEAD = 3.0, 1.0
"""Seconds that a run is left alone; fewer where a rank of the mesh is dead."""

ALL_WAIT, BETWEEN = 0.5, 1.5
"""Seconds that all its ranks have waited in collectives, as was seen in passing, until it is looked for which; and
between two such looks, as those that reduce much are seen to wait most of the time.
"""

AFTER_DONE = 1.0
"""Seconds after a rank has done its part until it is looked whether others wait for it: it will not come any more."""

A_RANK = 0.05
"""Seconds that each rank adds to the time between two looks: a look costs some milliseconds a rank."""

SOONEST = 0.3
"""Seconds until a finding that is too young to be told is looked at again, at least."""

_MOST_PLACES = 3

PATIENCE, LONGEST_PATIENCE = 1.0, 60.0
"""Seconds that a collective may be open before it is told: ranks are rarely in time to the millisecond.

Each telling doubles them: who waits at every checkpoint, and goes on each time, is not told of for ever.
"""

ADVICE = "`%mesh unstick` frees them, `%mesh stacks` shows where each rank is"

ADVICE_ON_CALLS = "`%mesh interrupt`, after the stop button, frees them, `%mesh stacks` shows where each rank is"

ADVICE_ON_BARE = "`python -m meshbook.debug stacks` shows where each rank is, `stop()` of their mesh ends them"


def watches_of(mesh: Mesh, run: Run, tell: Tell, *, is_bare: bool = False) -> tuple[Callable[[float], object], ...]:
    """All that looks after the ranks of a run while it is driven; a bare mesh is that of a script, without magics."""

    def look(ranks: Sequence[int]) -> Sequence[Finding]:
        return stragglers.findings(mesh.ledger(ranks, timeout=0.2), time.monotonic())

    def place_of(rank: int) -> str:
        return run.sightings.still(rank)[0]

    def told() -> set[int]:
        return {*mesh.desk.held, *mesh.queued(run), *hangs.stuck}

    advice = ADVICE_ON_BARE if is_bare else ADVICE

    def done() -> set[int]:
        return {*run.ranks} - {*run.owing}

    def all_wait() -> bool:
        return run.sightings.are_waiting(run.owing, ALL_WAIT)

    stragglers = StragglerWatch(run, tell, run.sightings.places, is_bare=is_bare)
    hangs = HangWatch(run, look, mesh.roster.dead, tell, advice, place_of, done, all_wait)
    halts = HaltWatch(mesh.roster, run, tell, is_bare=is_bare)
    waits = QueueWatch(run, lambda: mesh.queued(run), tell), halts, hangs
    unfinished = UnfinishedWatch(run, told, tell, is_bare=is_bare)
    return partial(mesh.sight, run), *waits, unfinished, stop_watch(mesh, run, look, tell)


class HangWatch:
    """Looks at the collectives of what is waited for, as often as it is called but at a calm pace.

    `look` gives what the ledgers of the mesh say of some ranks, `dead` its dead ranks, `place_of` the line that a rank
    was seen at, if any, `done` the ranks that have done their part, and `all_wait` says whether all others wait.
    """

    def __init__(
        self,
        run: Waited,
        look: Callable[[Sequence[int]], Sequence[Finding]],
        dead: Callable[[], Collection[int]],
        tell: Tell,
        advice: str = ADVICE,
        place_of: Callable[[int], str] = lambda rank: "",
        done: Callable[[], Collection[int]] = tuple[int, ...],
        all_wait: Callable[[], bool] = lambda: False,
    ) -> None:
        self._run = run
        self._look = look
        self._dead = dead
        self._tell = tell
        self._advice = advice
        self._place_of = place_of
        self._done = done
        self._all_wait = all_wait
        self._is_standstill = False  # which was looked at
        self._looked_at = -math.inf
        self._num_done, self._after_done = 0, math.inf
        self._next = run.started + (FIRST_WITH_DEAD if dead() else FIRST)
        self._attention = Attention(PATIENCE, run.started)
        self._patience = PATIENCE
        self._told: set[str] = set()
        self._stuck: dict[int, float] = {}  # ranks that were told, and since when they wait
        self._moved: dict[int, float] = {}  # those of them that did not wait at the last look, since when

    @property
    def stuck(self) -> Collection[int]:
        """The ranks of which was told that they wait for others, until they go on."""
        return self._stuck.keys()

    def __call__(self, now: float) -> None:
        """Tell what is new at `now`."""
        if self._attention.missed(now):  # ranks that were held at a prompt have just been let go
            self._next, self._after_done = (max(when, now + PATIENCE) for when in (self._next, self._after_done))
        done = frozenset(self._done())
        if len(done) != self._num_done:
            self._num_done, self._after_done = len(done), now + AFTER_DONE
        if now >= self._next or self._is_new_standstill(now):
            self._looked_at = now
            self._next = now + FIRST + A_RANK * len(self._run.owing)
            self._look_for(now)
        elif now >= self._after_done:
            self._after_done = math.inf
            self._look_for(now, only=done)

    def _is_new_standstill(self, now: float) -> bool:
        """Do all wait, so that most likely nobody will come, and was it not looked for why?"""
        if not self._all_wait():
            self._is_standstill = False
        elif not self._is_standstill and now >= self._looked_at + BETWEEN + A_RANK * len(self._run.owing):
            self._is_standstill = True
            return True
        return False

    def _look_for(self, now: float, only: frozenset[int] = frozenset()) -> None:
        """Tell what is to be told; or only who waits for nobody but these."""
        owing = set(self._run.owing)
        findings = [finding for finding in self._look(sorted(owing)) if owing & set(finding.waiting)]
        self._tell_moving(owing, {rank for finding in findings for rank in finding.waiting}, now)
        patience = self._patience
        for finding in findings:
            missed = set(finding.odd) & set(self._dead())
            young = (PATIENCE if missed else patience) - finding.seconds
            if only and not (finding.odd and only.issuperset(finding.odd)):
                continue
            if young <= 0:
                self._take(finding, missed, now)
            elif finding.text not in self._told and only:
                self._after_done = now + max(young, SOONEST)
            elif finding.text not in self._told:
                self._look_again(now + max(young, SOONEST))

    def _look_again(self, when: float) -> None:
        """Sooner than usual; of many ranks not by much."""
        self._next = min(self._next, when + A_RANK * len(self._run.owing))

    def _take(self, finding: Finding, missed: set[int], now: float) -> None:
        if finding.text not in self._told:
            self._told.add(finding.text)
            self._stuck.update(dict.fromkeys(finding.waiting, now - finding.seconds))
            self._patience = min(self._patience * 2, LONGEST_PATIENCE)
            rest = " and will not come" if missed else f"{self._whereabouts(finding)}: {self._advice}"
            self._tell(finding.waiting, "≠", finding.text + rest)
        if missed:
            self._run.miss(missed)

    def _whereabouts(self, finding: Finding) -> str:
        """Where those are that are waited for, and that do not wait themselves."""
        by_place: dict[str, list[int]] = {}
        for rank in set(finding.odd).intersection(self._run.owing).difference(finding.waiting):
            if place := self._place_of(rank):
                by_place.setdefault(place, []).append(rank)
        told = [(named(sorted(ranks)), "are" if ranks[1:] else "is", place) for place, ranks in by_place.items()]
        return "".join(f"; {who} {verb} at {place}" for who, verb, place in sorted(told)[:_MOST_PLACES])

    def _tell_moving(self, owing: set[int], waiting: set[int], now: float) -> None:
        """Who was told and waits no more at two looks: at one of them it may just not have answered in time."""
        moved = {rank: self._moved.get(rank, now) for rank in (self._stuck.keys() & owing) - waiting}
        if ranks := sorted(moved.keys() & self._moved.keys()):
            seconds = max(moved.pop(rank) - self._stuck.pop(rank) for rank in ranks)
            self._tell(ranks, "▶", f"{'goes' if len(ranks) == 1 else 'go'} on after {seconds:.0f} s")
        self._moved = moved
        if moved:
            self._look_again(now + SOONEST)
