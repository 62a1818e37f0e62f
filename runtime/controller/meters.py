"""What user code on the ranks of a mesh has reported: numbers over steps, and how far loops are. Bounded in memory."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..wire.messages import BarState, Metered, Point

MOST_POINTS = 200_000
"""Points of one metric that are kept over all ranks: 5 MB."""

FEWEST = 128
"""Points of one metric that each rank may keep, however many there are."""

_START = (0, 0)

_RATE_OVER = 1.0
"""Seconds over which the speed of a loop is measured."""


Mark = tuple[int, int]
"""A place in a series: how often it had been thinned, and how many points it had."""


class Series:
    """One metric of one rank. When it has become too long, every other point is left out: what is old is sparser.

    Example:
        >>> series = Series(most=4)
        >>> series.extend([(step, step / 10, 0.0) for step in range(6)])
        >>> list(series.steps), series.last
        ([0.0, 2.0, 4.0, 5.0], (5.0, 0.5, 0.0))
    """

    __slots__ = ("_most", "_num_thinned", "steps", "times", "values")

    def __init__(self, most: int) -> None:
        self.steps, self.values, self.times = array("d"), array("d"), array("d")
        self._most = most
        self._num_thinned = 0

    def extend(self, points: Iterable[Point]) -> None:
        for step, value, time in points:
            if len(self.steps) >= self._most:
                self.steps, self.values, self.times = self.steps[::2], self.values[::2], self.times[::2]
                self._num_thinned += 1
            self.steps.append(step)
            self.values.append(value)
            self.times.append(time)

    @property
    def last(self) -> Point:
        return self.steps[-1], self.values[-1], self.times[-1]

    def points(self) -> list[Point]:
        return list(zip(self.steps, self.values, self.times, strict=True))

    @property
    def mark(self) -> Mark:
        """The place behind the last point; it holds however often points are left out after it was taken."""
        return self._num_thinned, len(self.steps)

    def since(self, mark: Mark) -> list[Point]:
        """The points behind a mark, but for those that were left out since."""
        num_thinned, place = mark
        for _ in range(self._num_thinned - num_thinned):
            place = (place + 1) // 2
        return list(zip(self.steps[place:], self.values[place:], self.times[place:], strict=True))


@dataclass(slots=True)
class Loop:
    """How far one loop of a rank is, and how fast."""

    state: BarState
    rate: float = 0.0
    """Items a second, lately."""
    _mark: tuple[float, int] = (0.0, 0)

    def take(self, state: BarState) -> None:
        seconds, done = self._mark
        if state.done < done:
            self._mark = (0.0, 0)
        elif state.seconds - seconds >= _RATE_OVER or (not self.rate and state.seconds > 0):
            self.rate = (state.done - done) / (state.seconds - seconds) if state.seconds > seconds else 0.0
            self._mark = (state.seconds, state.done) if state.seconds - seconds >= _RATE_OVER else self._mark
        self.state = state


@dataclass(slots=True)
class Meters:
    """The reports of all ranks of one mesh. Written by the thread that runs the loop, read by any.

    Example:
        >>> meters = Meters(num_ranks=2)
        >>> meters.take(1, Metered({"loss": ((0.0, 0.5, 9.0), (1.0, 0.25, 9.1))}))
        >>> meters.history()
        {'loss': {1: [(0.0, 0.5, 9.0), (1.0, 0.25, 9.1)]}}
    """

    num_ranks: int
    count: int = 0
    """Grows with every report."""
    _series: dict[str, dict[int, Series]] = field(default_factory=dict[str, dict[int, Series]])
    _loops: dict[int, dict[int, Loop]] = field(default_factory=dict[int, dict[int, Loop]])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, rank: int, message: Metered) -> None:
        """A rank has reported."""
        with self._lock:
            self.count += 1
            for name, points in message.points.items():
                series = self._series.setdefault(name, {})
                if rank not in series:
                    series[rank] = Series(max(MOST_POINTS // max(self.num_ranks, 1), FEWEST))
                series[rank].extend(points)
            for state in message.bars:
                loops = self._loops.setdefault(rank, {})
                if state.number not in loops:
                    for over in [number for number, loop in loops.items() if loop.state.is_over]:
                        del loops[over]
                loops.setdefault(state.number, Loop(state)).take(state)

    def names(self) -> list[str]:
        """The metrics there are, in the order in which they came."""
        with self._lock:
            return list(self._series)

    def last(self, name: str) -> dict[int, Point]:
        """The last point of a metric on each rank that has one."""
        with self._lock:
            return {rank: series.last for rank, series in self._series.get(name, {}).items()}

    def points(self, name: str, rank: int) -> list[Point]:
        """One metric of one rank: (step, value, time since the epoch), the oldest first."""
        with self._lock:
            series = self._series.get(name, {}).get(rank)
            return series.points() if series is not None else []

    def loop(self, rank: int) -> Loop | None:
        """The outermost loop with a progress that a rank is in; after its end, the last one."""
        with self._lock:
            loops = self._loops.get(rank, {})
            going = [loop for loop in loops.values() if not loop.state.is_over] or list(loops.values())[-1:]
            return going[0] if going else None

    def history(self) -> dict[str, dict[int, list[Point]]]:
        """Every metric, on every rank: (step, value, time since the epoch), the oldest first."""
        with self._lock:
            return {
                name: {rank: each.points() for rank, each in sorted(series.items())}
                for name, series in self._series.items()
            }

    def fresh(self, marks: dict[Series, Mark]) -> list[tuple[str, int, list[Point]]]:
        """What was reported behind a reader's marks, which go forward; where there are none yet, all that is kept.

        Nothing is put aside for a reader, so there may be any number, and one that never comes back costs nothing.
        """
        with self._lock:
            found = [
                (name, rank, each.since(marks.get(each, _START)))
                for name, series in self._series.items()
                for rank, each in series.items()
                if marks.get(each) != each.mark
            ]
            now = {each: each.mark for series in self._series.values() for each in series.values()}
        marks.clear()
        marks.update(now)
        return found

    def forget_loops(self, rank: int) -> None:
        """The rank has a new process."""
        with self._lock:
            self._loops.pop(rank, None)

    def renumber(self, kept: Mapping[int, int], num_ranks: int) -> None:
        """The mesh was resized: ranks that stay have other numbers, of those that went nothing is kept."""
        with self._lock:
            self.num_ranks = num_ranks
            self._series = {
                name: {kept[rank]: each for rank, each in series.items() if rank in kept}
                for name, series in self._series.items()
            }
            self._loops = {kept[rank]: loops for rank, loops in self._loops.items() if rank in kept}
