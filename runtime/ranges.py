"""Groups of ranks in few characters: ranges of numbers, which selectors take too, or blocks of coordinates. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

_LEAST_STEPS: Final = 5
"""So many ranks that lie evenly apart are told by their step."""


def ranks_text(ranks: Iterable[int]) -> str:
    """Ranks as ranges, the last number included; of many that lie evenly apart the step.

    >>> ranks_text([0, 1, 2, 3, 7]), ranks_text(range(1, 64, 2))
    ('0-3,7', '1-63:2')
    """
    return ",".join(map(_run_text, _runs(sorted(set(ranks)))))


def named(ranks: Collection[int]) -> str:
    """Ranks with the word in front.

    Example:
        >>> named([3]), named([0, 1, 2, 7])
        ('rank 3', 'ranks 0-2,7')
    """
    return f"rank{'s' * (len(ranks) != 1)} {ranks_text(ranks)}"


def coords_text(points: Sequence[Mapping[str, int]], axes: Collection[str], limit: int = 60) -> str:
    """The coordinates of a group of ranks: one block where they fill one, else the few blocks they fill.

    >>> coords_text([{"dp": 0, "tp": 3}, {"dp": 1, "tp": 3}], ["dp", "tp"])
    'dp=0-1,tp=3'
    >>> coords_text([{"dp": 0, "tp": 0}, {"dp": 0, "tp": 1}, {"dp": 1, "tp": 0}], ["dp", "tp"])
    'dp=0,tp=0-1 · dp=1,tp=0'

    Longer than `limit` characters, it is cut and ends in the number of points.
    """
    return blocks_text(coord_blocks(points, axes), axes, len(points), limit)


def blocks_text(blocks: Iterable[Sequence[str]], axes: Iterable[str], num_points: int, limit: int = 60) -> str:
    """The same, of the blocks that these points fill.

    >>> blocks_text([("0-1", "3")], ["dp", "tp"], 2)
    'dp=0-1,tp=3'
    """
    names = list(axes)
    texts = [",".join(f"{n}={text}" for n, text in zip(names, block, strict=True)) for block in blocks]
    text = " · ".join(texts)
    if len(text) <= limit or len(texts) == 1:
        return text
    while len(texts) > 1 and len(" · ".join(texts)) > limit - 15:
        texts.pop()
    return f"{' · '.join(texts)} … ({num_points:,} points)"


def coord_blocks(points: Sequence[Mapping[str, int]], axes: Iterable[str]) -> list[tuple[str, ...]]:
    """The blocks that a group of ranks fills, each as its indices along the axes.

    >>> coord_blocks([{"dp": 0, "tp": 0}, {"dp": 0, "tp": 1}, {"dp": 1, "tp": 0}], ["dp", "tp"])
    [('0', '0-1'), ('1', '0')]
    """
    names = list(axes)
    blocks = _blocks({tuple(point[name] for name in names) for point in points})
    return [tuple(map(_index_text, block)) for block in blocks]


def _runs(numbers: Sequence[int]) -> list[range]:
    """Neighbours together, and what is left in steps of one size, if it is worth that."""
    runs: list[range] = []
    for number in numbers:
        if runs and number == runs[-1].stop:
            runs[-1] = range(runs[-1].start, number + 1)
        else:
            runs.append(range(number, number + 1))
    return runs if len(runs) < _LEAST_STEPS else _stepped(runs)


def _stepped(runs: Sequence[range]) -> list[range]:
    found: list[range] = []
    at = 0
    while at < len(runs):
        end, step = at + 1, runs[at + 1].start - runs[at].start if at + 1 < len(runs) else 1
        while (
            end < len(runs)
            and len(runs[end - 1]) == len(runs[end]) == 1
            and runs[end].start - runs[end - 1].start == step
        ):
            end += 1
        if end - at < _LEAST_STEPS:
            end = at + 1
            found.append(runs[at])
        else:
            found.append(range(runs[at].start, runs[end - 1].stop, step))
        at = end
    return found


def _run_text(run: range) -> str:
    step = f":{run.step}" if run.step > 1 else ""
    return f"{run[0]}-{run[-1]}{step}" if len(run) > 1 else str(run[0])


def _index_text(values: Sequence[int]) -> str:
    text = ranks_text(values)
    return f"({text})" if "," in text else text


def _blocks(points: set[tuple[int, ...]]) -> list[tuple[tuple[int, ...], ...]]:
    """The points as few blocks: indices of the first axis with the same rest go together."""
    if points == {()}:
        return [()]
    rest_of: dict[int, set[tuple[int, ...]]] = {}
    for point in sorted(points):
        rest_of.setdefault(point[0], set()).add(point[1:])
    firsts_of: dict[frozenset[tuple[int, ...]], list[int]] = {}
    for first, rest in rest_of.items():
        firsts_of.setdefault(frozenset(rest), []).append(first)
    return [(tuple(firsts), *block) for rest, firsts in firsts_of.items() for block in _blocks(set(rest))]
