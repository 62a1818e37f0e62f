"""The values of one number over time, in bounded memory: old ones get coarser, none falls off the end."""

from __future__ import annotations

import math

BARS = "▁▂▃▄▅▆▇█"
MOST = 240
"""Values that are kept; at the next one, every second goes. An even number: so the next one is itself kept."""
_WIDTH = 40


class Series:
    """Values in the order of time, the last one always as it is.

    Example:
        >>> series = Series()
        >>> for step in range(1000):
        ...     series.add(step)
        >>> len(series.values) <= MOST, series.values[0], series.last
        (True, 0, 999)
    """

    def __init__(self) -> None:
        self.values: list[float] = []
        self.last = math.nan
        self.num_added = 0
        self._stride = 1

    def add(self, value: float) -> None:
        """The next value."""
        if self.num_added % self._stride == 0:
            if len(self.values) == MOST:
                del self.values[1::2]
                self._stride *= 2
            self.values.append(value)
        self.last = value
        self.num_added += 1

    def points(self) -> list[float]:
        """The values that are kept, and the last one."""
        is_kept = (self.num_added - 1) % self._stride == 0
        return list(self.values) if is_kept or not self.num_added else [*self.values, self.last]


def sparkline(values: list[float], low: float, high: float) -> str:
    """Values as a line of bars between `low` and `high`; of more than 40, the last of each share.

    Example:
        >>> sparkline([0, 1, 2, 3, float("nan")], 0, 3)
        '▁▃▆█ '
    """
    count = min(len(values), _WIDTH)
    picked = [values[(index + 1) * len(values) // count - 1] for index in range(count)]
    return "".join(_bar(value, low, high) for value in picked)


def _bar(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return " " if math.isnan(value) else (BARS[-1] if value > 0 else BARS[0])
    share = (value - low) / (high - low) if high > low else 0.5
    return BARS[min(max(int(share * len(BARS)), 0), len(BARS) - 1)]


def bounds(series: list[Series]) -> tuple[float, float]:
    """The smallest and the largest finite value of all; 0 and 0 where there is none."""
    finite = [value for each in series for value in (*each.values, each.last) if math.isfinite(value)]
    return (min(finite), max(finite)) if finite else (0.0, 0.0)
