"""Ranks for which the others of a running cell wait again and again: told in the cell, once for each line of theirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from .collectives import MeshLedger
from .habits import MUCH, Habits
from .ledger import Finding
from .sightings import WAITING
from .waited import Tell, Waited

FEWEST = 6
"""Sightings that are enough to say where ranks mostly are."""

ADVICE = "`%mesh profile`, in a console, shows what each rank does"

ADVICE_ON_BARE = "`python -m meshbook.debug profile`, in a terminal, shows what each rank does"

_Places = Callable[[int], Mapping[str, int]]


def _nowhere(rank: int) -> Mapping[str, int]:
    """Nobody has looked."""
    return {}


class StragglerWatch:
    """Looks at each ledger that somebody has asked for anyway, while a cell or calls run.

    `places` says how often a rank was seen where; a bare mesh is that of a script, without magics.
    """

    def __init__(self, run: Waited, tell: Tell, places: _Places = _nowhere, *, is_bare: bool = False) -> None:
        self._run = run
        self._tell = tell
        self._places = places
        self._advice = ADVICE_ON_BARE if is_bare else ADVICE
        self._habits = Habits()
        self._told: set[tuple[tuple[int, ...], str]] = set()

    def findings(self, ledger: MeshLedger, now: float) -> Sequence[Finding]:
        """Those of the ledger, after a look at who comes late."""
        for late in self._habits.settled(ledger.late_within(now - self._run.started), now):
            if (late.ranks, late.what) not in self._told:
                self._told.add((late.ranks, late.what))
                self._tell(late.ranks, "◷", late.text + self._whereabouts(late.ranks))
        return ledger.findings

    def _whereabouts(self, ranks: Sequence[int]) -> str:
        """What they do while the others wait: the line at which they are seen more often; else how to look."""
        late, others = _parts(map(self._places, ranks)), _parts(map(self._places, {*self._run.owing} - {*ranks}))
        more = {place: part - others.get(place, 0.0) for place, part in late.items() if WAITING not in place}
        place = max(more, key=more.__getitem__, default="")
        if more.get(place, 0.0) < MUCH:
            return f": {self._advice}"
        return f"; {'it is' if len(ranks) == 1 else 'they are'} at {place} then"


def _parts(seen: Iterable[Mapping[str, int]]) -> dict[str, float]:
    """At which places these ranks were in which part of the times; nowhere if they were seen too rarely."""
    places: Counter[str] = Counter()
    for each in seen:
        places.update(each)
    return {place: times / places.total() for place, times in places.items()} if places.total() >= FEWEST else {}
