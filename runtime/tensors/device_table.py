"""A mesh as a table of its ranks, as text. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence


def device_table(sizes: Mapping[str, int], ranks: Sequence[int]) -> str:
    """The numbers of ranks by their places: the last axis goes to the right, the one before down, others by sections.

    Example:
        >>> print(device_table({"dp": 2, "tp": 3}, range(4, 10)))
        dp \\ tp  0  1  2
        0        4  5  6
        1        7  8  9
        >>> print(device_table({"pp": 2, "dp": 1, "tp": 2}, range(4)))
        pp=0
        dp \\ tp  0  1
        0        0  1
        pp=1
        dp \\ tp  0  1
        0        2  3
    """
    *outer, down, right = ["", "", *sizes][-max(len(sizes), 2) :]
    width, height = sizes.get(right, 1), sizes.get(down, 1)
    numbers = iter(ranks)
    lines: list[str] = []
    for point in itertools.product(*(range(sizes[axis]) for axis in outer)):
        lines += [",".join(f"{axis}={place}" for axis, place in zip(outer, point, strict=True))] if outer else []
        rows = [[str(place) if down else "", *map(str, itertools.islice(numbers, width))] for place in range(height)]
        lines += _aligned([[f"{down} \\ {right}" if down else right, *map(str, range(width))], *rows])
    return "\n".join(lines)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
