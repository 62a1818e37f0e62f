"""Where the ranks of a run were last seen: a process that is killed cannot say any more which line it was on.

They are asked while they work, at a calm pace, and answer on their control threads. Pure but for the clock: who asks
hands in the time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from ...runtime.wire import codec
from ...runtime.wire.lane import Frames
from ...runtime.wire.messages import Answer, Note, Reply

FIRST = 0.3
"""Seconds that a run is left alone: most cells are done by then, and cost nothing."""

EVERY = 0.5
"""Seconds between two questions to a few ranks."""

_A_RANK = 0.02

WAITING = "waiting in "
"""Begins what a rank says of the collective that it waits in, behind its line."""

_AWAY = 3.0
"""Seconds without a question after which nothing is known of the time between: somebody was at a prompt, say."""


class Seen(NamedTuple):
    """Where a rank was seen last, and since when it was seen nowhere else."""

    place: str
    first: float
    last: float


class Sightings:
    """The last known place of each rank of one run; the caller of the endpoint `where`."""

    def __init__(self, started: float, num_ranks: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._next = started + FIRST
        self._since = self._last = started
        self._pace = EVERY + _A_RANK * num_ranks  # the more ranks, the rarer: not above fifty questions a second
        self._clock = clock
        self._asked: set[int] = set()
        self._seen: dict[int, Seen] = {}
        self._places: dict[int, Counter[str]] = {}

    def due(self, now: float, ranks: Iterable[int]) -> list[int]:
        """Which of `ranks` to ask now, most often none. One that still owes an answer is not asked again.

        Example:
            >>> sightings = Sightings(started=0.0, num_ranks=2)
            >>> [sightings.due(now, [0, 1]) for now in (0.1, 0.3, 0.4, 1.0)]
            [[], [0, 1], [], []]
        """
        if now < self._next:
            return []
        if now - self._last > max(_AWAY, 2 * self._pace):
            self._since = now
        self._last, self._next = now, now + self._pace
        due = [rank for rank in ranks if rank not in self._asked]
        self._asked.update(due)
        return due

    def last(self, rank: int) -> str:
        """Example: `last seen at cell 3 line 2 (0.4 s before)`; empty if it was not seen."""
        if rank not in self._seen:
            return ""
        seen = self._seen[rank]
        return f"last seen at {seen.place} ({self._clock() - seen.last:.1f} s before)"

    def still(self, rank: int) -> tuple[str, float]:
        """Where a rank was at every sighting for so many seconds; no place of one that has never answered."""
        seen = self._seen.get(rank)
        if seen is None and rank not in self._asked:
            return "", 0.0
        return (seen.place if seen else ""), self._clock() - max(self._since, seen.first if seen else 0.0)

    def places(self, rank: int) -> Mapping[str, int]:
        """How often a rank was seen where."""
        return self._places.get(rank, Counter())

    def are_waiting(self, ranks: Iterable[int], seconds: float) -> bool:
        """Was each of these (at least one) seen in one collective, at two times or more that are so far apart?"""
        seen = [self._seen.get(rank) for rank in ranks]
        return bool(seen) and all(each and WAITING in each.place and each.last - each.first >= seconds for each in seen)

    def on_reply(self, rank: int, reply: Reply | Answer, frames: Frames) -> None:
        self._asked.discard(rank)
        with suppress(codec.DecodeError):
            if (place := codec.decode(frames[0], frames[1:])) and reply.ok:
                now, before = self._clock(), self._seen.get(rank)
                first = before.first if before is not None and before.place == place else now
                self._seen[rank] = Seen(place, first, now)
                self._places.setdefault(rank, Counter())[place] += 1

    def on_note(self, rank: int, note: Note, frames: Frames) -> None: ...

    def on_lost(self, rank: int, why: str) -> None: ...
