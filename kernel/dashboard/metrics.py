"""What user code on the ranks has reported with `meshbook.log`, as plain data."""

from __future__ import annotations

import importlib
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ...runtime.errors import marked
from ...runtime.ranks.place import coordinates
from ...runtime.wire.messages import Point


class Metrics:
    """The metrics of a mesh, as they were when they were asked for.

    `data()` is all of it as plain values, `to_pandas()` as one table. Of a long run what is old is sparser.

    Example:
        >>> Metrics({"loss": {0: [(0.0, 0.5, 9.0)], 1: [(0.0, 0.7, 9.1)]}}, {"dp": 2})
        loss  step 0  median 0.6  range 0.5 to 0.7  2 ranks, 2 points
    """

    def __init__(self, history: Mapping[str, Mapping[int, Sequence[Point]]], axes: Mapping[str, int]) -> None:
        self._history = {name: {rank: list(each) for rank, each in ranks.items()} for name, ranks in history.items()}
        self._axes = dict(axes)

    def data(self) -> dict[str, dict[int, list[Point]]]:
        """By name and rank: (step, value, seconds since the epoch), the oldest first."""
        return self._history

    def to_pandas(self) -> Any:
        """A DataFrame with a row a point: name, rank, an index on each axis, step, value, time.

        Raises `ModuleNotFoundError` where pandas is not installed.
        """
        pandas: Any = importlib.import_module("pandas")  # it has no types

        rows = [
            {"name": name, "rank": rank, **coordinates(rank, self._axes), "step": step, "value": value, "time": when}
            for name, ranks in self._history.items()
            for rank, points in ranks.items()
            for step, value, when in points
        ]
        axes = [axis for axis in self._axes if axis != "rank"]
        frame = pandas.DataFrame(rows, columns=["name", "rank", *axes, "step", "value", "time"])
        frame["time"] = pandas.to_datetime(frame["time"], unit="s")
        return frame

    def __getitem__(self, name: str) -> dict[int, list[Point]]:
        if name not in self._history:
            raise marked(
                KeyError(f"no rank has reported {name!r}: there is {', '.join(self._history) or 'nothing yet'}")
            )
        return self._history[name]

    def __iter__(self) -> Any:
        return iter(self._history)

    def __len__(self) -> int:
        return len(self._history)

    def __repr__(self) -> str:
        if not self._history:
            return "no metrics: report some on the ranks with meshbook.log(loss=...)"
        return "\n".join(_line(name, ranks) for name, ranks in self._history.items())


def _line(name: str, ranks: Mapping[int, Sequence[Point]]) -> str:
    last = [points[-1] for points in ranks.values() if points]
    step = max(point[0] for point in last)
    good = [value for _, value, _ in last if not math.isnan(value)]
    nan = f", {len(last) - len(good)} nan" if len(good) < len(last) else ""
    spread = f"median {statistics.median(good):g}  range {min(good):g} to {max(good):g}" if good else "no number"
    num_points = sum(map(len, ranks.values()))
    counts = f"{len(ranks)} rank{'s' * (len(ranks) > 1)}, {num_points} point{'s' * (num_points > 1)}"
    return f"{name}  step {step:g}  {spread}  {counts}{nan}"
