"""Metrics of many ranks merged into one line with a band: median, least and greatest at each step. Pure.

Steps fall into bins of equal width, which doubles when there are too many: a curve stays a few hundred points however
long it runs. Only bins that got something new are looked at again.
"""

from __future__ import annotations

import math
import random
import struct
from array import array
from collections.abc import Iterable, Sequence

from ...runtime.wire.messages import Point

MOST_BINS = 160

MOST_VALUES = 512
"""Values of a bin that are kept for its median; of more, a sample, by which the median is some 2 % of them off."""

_LATEST = 8
"""Bins at the end that wait until most ranks have come to them: the few that are first would bend the curve."""

Row = tuple[float, float, float, float]
"""A step, then least, median and greatest value there."""

_ROW = struct.Struct("<ffff")
_PAIR = struct.Struct("<ff")


class _Bin:
    """The values of all ranks within some steps: least and greatest, and enough of them for the median."""

    __slots__ = ("count", "greatest", "least", "sample")

    def __init__(self) -> None:
        self.count, self.least, self.greatest = 0, math.inf, -math.inf
        self.sample: array[float] = array("d")

    def add(self, value: float, chance: random.Random) -> None:
        """A NaN counts for nothing. Each value is in the sample by the same chance, however many come."""
        if math.isnan(value):
            return
        self.count += 1
        self.least, self.greatest = min(self.least, value), max(self.greatest, value)
        if len(self.sample) < MOST_VALUES:
            self.sample.append(value)
        elif (place := int(chance.random() * self.count)) < MOST_VALUES:
            self.sample[place] = value

    def join(self, other: _Bin, chance: random.Random) -> None:
        """Take the other's values too: each is in the sample by its share of all."""
        self.count += other.count
        self.least, self.greatest = min(self.least, other.least), max(self.greatest, other.greatest)
        if len(self.sample) + len(other.sample) <= MOST_VALUES:
            self.sample.extend(other.sample)
        else:
            theirs = round(MOST_VALUES * other.count / self.count)
            mine = chance.sample(self.sample, MOST_VALUES - theirs)
            self.sample = array("d", mine + chance.sample(other.sample, theirs))

    def spread(self) -> tuple[float, float, float]:
        """Least, median and greatest."""
        if not self.count:
            return math.nan, math.nan, math.nan
        return self.least, _median(sorted(self.sample)), self.greatest


class Band:
    """One metric over all ranks.

    Example:
        >>> band = Band()
        >>> for rank in range(3):
        ...     band.extend([(0.0, rank + 1.0, 0.0), (1.0, rank / 2, 0.0)], rank)
        >>> band.rows()
        [(0.0, 1.0, 2.0, 3.0), (1.0, 0.0, 0.5, 1.0)]
    """

    def __init__(self, most: int = MOST_BINS) -> None:
        self._most = most
        self._width = 1.0
        self._bins: dict[int, _Bin] = {}
        self._chance = random.Random(0)  # its own: the user's is left alone, and equal values make equal curves
        self._rows: dict[int, Row] = {}
        self._reached: dict[int, float] = {}  # by rank: its last step

    def extend(self, points: Iterable[Point], rank: int = 0) -> None:
        """Add points of one rank."""
        for step, value, _ in points:
            if math.isfinite(step):
                self._reached[rank] = max(step, self._reached.get(rank, step))
                place = math.floor(step / self._width)
                if place not in self._bins:
                    self._bins[place] = _Bin()
                self._bins[place].add(value, self._chance)
                self._rows.pop(place, None)
                while len(self._bins) > self._most:
                    self._widen()

    def rows(self) -> list[Row]:
        """The merged curve, by step. A NaN counts for nothing, where other ranks have a number."""
        for place, values in self._bins.items():
            if place not in self._rows:
                self._rows[place] = (place * self._width, *values.spread())
        places = sorted(self._rows)
        reached = sorted(self._reached.values())[len(self._reached) // 5] if self._reached else math.inf
        late = sum(place * self._width > reached for place in places[-_LATEST:])
        return [self._rows[place] for place in places[: len(places) - late]]

    def _widen(self) -> None:
        self._width *= 2
        bins: dict[int, _Bin] = {}
        for place, values in self._bins.items():
            bins.setdefault(place // 2, _Bin()).join(values, self._chance)
        self._bins, self._rows = bins, {}


def _median(ordered: Sequence[float]) -> float:
    upper = len(ordered) // 2
    return ordered[upper] if len(ordered) % 2 else (ordered[upper - 1] + ordered[upper]) / 2


def pack_rows(rows: Sequence[Row]) -> bytes:
    """As 32-bit floats, four a row."""
    return b"".join(_ROW.pack(*map(_fit, row)) for row in rows)


def pack_line(points: Sequence[Point], most: int = MOST_BINS) -> bytes:
    """The curve of one rank as 32-bit floats, step and value, thinned to about so many points; the last one stays.

    Example:
        >>> points = [(float(step), 1.0, 0.0) for step in range(1000)]
        >>> line = pack_line(points)
        >>> len(line) // 8, struct.unpack("<ff", line[-8:])
        (143, (999.0, 1.0))
    """
    stride = max(-(-len(points) // most), 1)
    chosen = points[(len(points) - 1) % stride :: stride]
    return b"".join(_PAIR.pack(_fit(step), _fit(value)) for step, value, _ in chosen[-most:])


_LARGEST = 3.4e38


def _fit(value: float) -> float:
    return max(min(value, _LARGEST), -_LARGEST) if math.isfinite(value) else value
