"""Metrics of many ranks merged into one line with a band: median, least and greatest at each step. Pure.

Steps fall into bins of equal width, which doubles when there are too many: a curve stays a few hundred points however
long it runs. Only bins that got something new are looked at again.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Iterable, Sequence

from ..runtime.wire.messages import Point

MOST_BINS = 160

_LATEST = 8
"""Bins at the end that wait until most ranks have come to them: the few that are first would bend the curve."""

Row = tuple[float, float, float, float]
"""A step, then least, median and greatest value there."""

_ROW = struct.Struct("<ffff")
_PAIR = struct.Struct("<ff")


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
        self._bins: dict[int, array[float]] = {}
        self._rows: dict[int, Row] = {}
        self._reached: dict[int, float] = {}  # by rank: its last step

    def extend(self, points: Iterable[Point], rank: int = 0) -> None:
        """Add points of one rank."""
        for step, value, _ in points:
            if math.isfinite(step):
                self._reached[rank] = max(step, self._reached.get(rank, step))
                place = math.floor(step / self._width)
                self._bins.setdefault(place, array("d")).append(value)
                self._rows.pop(place, None)
        while len(self._bins) > self._most:
            self._widen()

    def rows(self) -> list[Row]:
        """The merged curve, by step. A NaN counts for nothing, where other ranks have a number."""
        for place, values in self._bins.items():
            if place not in self._rows:
                self._rows[place] = (place * self._width, *_spread(values))
        places = sorted(self._rows)
        reached = sorted(self._reached.values())[len(self._reached) // 5] if self._reached else math.inf
        late = sum(place * self._width > reached for place in places[-_LATEST:])
        return [self._rows[place] for place in places[: len(places) - late]]

    def _widen(self) -> None:
        self._width *= 2
        bins: dict[int, array[float]] = {}
        for place, values in self._bins.items():
            bins.setdefault(place // 2, array("d")).extend(values)
        self._bins, self._rows = bins, {}


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    good = sorted(value for value in values if not math.isnan(value))
    if not good:
        return math.nan, math.nan, math.nan
    return good[0], good[len(good) // 2] if len(good) % 2 else _middle(good), good[-1]


def _middle(values: Sequence[float]) -> float:
    upper = len(values) // 2
    return (values[upper - 1] + values[upper]) / 2


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
