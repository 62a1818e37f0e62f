"""Bars of ranks that are in step: each rank draws its own at its own moments, so that they are never quite equal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from .stamps import unstamped

APART: Final = 0.3
"""Seconds that bars in step may be apart: tqdm draws one ten times a second at most."""

_TQDM: Final = re.compile(
    r"(?P<head>.*?) *\d+%\|[^|]*\| *(?P<done>\d+)/(?P<total>\d+) "
    r"\[(?:\d+:)*\d+:\d\d<[\d:?]+, +(?P<pace>\d+\.\d+)(?P<unit>[^\s,/\]]+)/(?P<per>[^\s,\]]+)(?P<rest>.*)",
    re.DOTALL,
)


class _Bar(NamedTuple):
    done: int
    per_second: float


def in_step(bars: Sequence[str]) -> list[list[int]]:
    """Groups of bars, by index, that say the same at the same time; the first of a group is the one furthest behind.

    Those of tqdm are in step while they are at most one step, or `APART` seconds of steps, ahead of it. The groups come
    in the order of their lowest indices.

    Example:
        >>> bars = [f"{done}%|█    | {done}/100 [00:01<00:09, 20.00it/s]" for done in (12, 11, 30, 11)]
        >>> in_step(bars)
        [[1, 3, 0], [2]]
    """
    kinds: dict[str, list[int]] = {}
    read: dict[int, _Bar] = {}
    for index, text in enumerate(bars):
        kind, bar = _read(text)
        kinds.setdefault(kind, []).append(index)
        if bar is not None:
            read[index] = bar
    groups = [group for indices in kinds.values() for group in _clusters(indices, read)]
    return sorted(groups, key=min)


def _read(text: str) -> tuple[str, _Bar | None]:
    """What kind of bar that is, and how far it is; of other text, itself and None."""
    found = _TQDM.fullmatch(text)
    pace = float(found["pace"]) if found else 0.0
    if found is None or not pace:
        return unstamped(text), None
    is_slow = found["unit"] == "s"  # 2.31s/it
    kind = "\0".join((found["head"], found["total"], found["per"] if is_slow else found["unit"], found["rest"]))
    return kind, _Bar(int(found["done"]), 1 / pace if is_slow else pace)


def _clusters(indices: Sequence[int], read: dict[int, _Bar]) -> list[list[int]]:
    if indices[0] not in read:
        return [list(indices)]
    groups: list[list[int]] = []
    for index in sorted(indices, key=lambda each: (read[each].done, each)):
        if groups and read[index].done - read[groups[-1][0]].done <= max(1, APART * read[groups[-1][0]].per_second):
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups
