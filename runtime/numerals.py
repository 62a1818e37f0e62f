"""Numbers in texts: what many texts that differ in their numbers alone say, and which of them is the odd one. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple

from .ranges import named

_FAR: Final = 10
"""So many times as far from the median as half of the numbers lie at most, and a number is an odd one."""

_NEAR: Final = 1e-3
"""What is no farther from the median than this part of it is not: sums in another order, clocks."""

_FEW_STEPS: Final = 2
"""So far may counts be apart, of steps say: ranks are seldom in step."""

_PART: Final = 0.05
"""So large a part of them, too."""

_MOST_NAMED: Final = 2
"""Ranks that are named for having the least of all, or the most."""

LEAST_ALIKE: Final = 6
"""Of fewer numbers nobody can say which lies apart."""

_FEW: Final = 8
"""More odd ones than these are none."""

_NUMBER: Final = re.compile(
    r"""(\x1b\[[\d;]*[A-Za-z])  # a colour, whose numbers mean something else
    | (?<!\ )(\ *+)  # digits that are aligned have more of them or less
      ( (?: (?<![\w.)\]-])[-+] )?
        (?: \d{1,3}(?:,\d{3})+(?:\.\d+)? | \d+(?:\.\d+|\.(?!\w))? | (?<![\w.])\.\d+ )
        (?: [eE][-+]?\d+ )? )""",
    re.VERBOSE,
)


class Read(NamedTuple):
    """A text, read: what stands around its numbers, these as they were written, and the blanks before each.

    Example:
        >>> read("step  3: loss -0.5").numbers, read("step 3: loss 12").around == read("step 4: loss 1e-3").around
        (('3', '-0.5'), True)
    """

    around: tuple[str, ...]
    numbers: tuple[str, ...]
    pads: tuple[str, ...]

    @property
    def values(self) -> list[float]:
        """The numbers as such."""
        return [_value(number) for number in self.numbers]


def read(text: str) -> Read:
    """What a text says, apart from its numbers, and these."""
    parts = _NUMBER.split(text)
    if "\x1b" in text:
        parts = _without_colours(parts)
    return Read(tuple(parts[::4]), tuple(parts[3::4]), tuple(parts[2::4]))


def _without_colours(parts: list[str]) -> list[str]:
    """Text, colour, blanks, number, text and so on; the colours become a part of the text around them."""
    left = parts[:1]
    for colour, pad, number, text in zip(*(parts[at::4] for at in (1, 2, 3, 4)), strict=True):
        if colour:
            left[-1] += colour + text
        else:
            left += ["", pad, number, text]
    return left


def brief(whole: Read) -> Read:
    """The same with no more digits than are read at a glance.

    Example:
        >>> brief(read("loss 2.0003335354257166 of 12345678")).numbers
        ('2.000', '12345678')
    """
    return whole._replace(numbers=tuple(map(_brief_number, whole.numbers)))


def _brief_number(number: str) -> str:
    return f"{float(number):#.4g}" if "." in number and len(number) > 7 and "," not in number else number


def spread(reads: Sequence[Read]) -> str:
    """Texts that differ in their numbers alone as one, each number from the least to the most.

    Example:
        >>> spread([read(f"step 3: loss {loss}") for loss in (0.5, 0.25, 1e-3)])
        'step 3: loss 0.001…0.5'
    """
    pads = [min(pads, key=len) for pads in zip(*(each.pads for each in reads), strict=True)]
    spans = [_span(numbers) for numbers in zip(*(each.numbers for each in reads), strict=True)]
    return "".join(map("".join, zip(reads[0].around, [*pads, ""], [*spans, ""], strict=True)))


def _span(numbers: Sequence[str]) -> str:
    if len(set(numbers)) == 1:
        return numbers[0]
    # By their texts too: whole numbers may be longer than floats tell apart.
    least, *_, most = sorted(set(numbers), key=lambda number: (_value(number), number))
    return f"{least}…{most}"


def extremes(numbers: Mapping[int, float]) -> str:
    """Which ranks have the least and the most, where these are few.

    Example:
        >>> extremes({4: 0.5, 5: 0.25, 6: 0.75, 7: 0.5})
        'least: rank 5, most: rank 6'
        >>> extremes({4: 1, 5: 1, 6: 1, 7: 3}), extremes({4: 1, 5: 1}), extremes({})
        ('most: rank 7', '', '')
    """
    least, most = min(numbers.values(), default=0.0), max(numbers.values(), default=0.0)
    if least == most:
        return ""
    who = {"least": least, "most": most}
    there = {word: [rank for rank, number in numbers.items() if number == end] for word, end in who.items()}
    return ", ".join(f"{word}: {named(ranks)}" for word, ranks in there.items() if len(ranks) <= _MOST_NAMED)


def only_number(texts: Mapping[int, str]) -> dict[int, float]:
    """The number in which these texts, by rank, differ, if it is one.

    Example:
        >>> only_number({0: "loss 0.5 of 3", 1: "loss 0.25 of 3"}), only_number({0: "1 of 3", 1: "2 of 4"})
        ({0: 0.5, 1: 0.25}, {})
    """
    columns = list(zip(*(read(text).values for text in texts.values()), strict=True))
    differ = [column for column in columns if len(set(column)) > 1]
    return dict(zip(texts, differ[0], strict=True)) if len(differ) == 1 else {}


def _value(number: str) -> float:
    return float(number.replace(",", ""))


def condensed(rows: Sequence[Sequence[str]], keeps_odd: bool = True) -> list[tuple[list[int], list[str]]]:
    """Rows of as many texts each: those that differ in their numbers alone as one, with their indices.

    The odd ones of many keep rows of their own, if it `keeps_odd`.

    Example:
        >>> condensed([["idle", "7 MB"], ["idle", "9 MB"], ["busy", "8 MB"]])
        [([0, 1], ['idle', '7…9 MB']), ([2], ['busy', '8 MB'])]
    """
    reads = [[read(text) for text in row] for row in rows]
    kinds: dict[tuple[tuple[str, ...], ...], list[int]] = {}
    for index, row in enumerate(reads):
        kinds.setdefault(tuple(each.around for each in row), []).append(index)
    groups: list[list[int]] = []
    for alike in kinds.values():
        values = {index: [value for each in reads[index] for value in each.values] for index in alike}
        odd = odd_ones(values) if keeps_odd and len(alike) >= LEAST_ALIKE else set[int]()
        usual = [index for index in alike if index not in odd]
        groups += [group for group in (usual, *([index] for index in odd)) if group]
    return [
        (group, [spread(column) for column in zip(*(reads[index] for index in group), strict=True)])
        for group in sorted(groups)
    ]


def odd_ones(values: Mapping[int, Sequence[float]]) -> set[int]:
    """Those that have a number which is far from what the others have in its place; not too many.

    Of numbers that lie evenly, such as ranks, none does.

    Example:
        >>> odd_ones({rank: [rank, 99.0 if rank == 3 else 2.0 + rank / 100] for rank in range(8)})
        {3}
    """
    odd = set[int]()
    for column in zip(*values.values(), strict=True):
        far = _far(dict(zip(values, column, strict=True)))
        odd |= far if len(far) <= _FEW else set()
    return odd if len(odd) <= _FEW else set()


def _far(values: Mapping[int, float]) -> set[int]:
    middle = median(values.values())
    away = {index: abs(value - middle) for index, value in values.items()}
    least = max(_FAR * median(away.values()), _NEAR * abs(middle))
    if all(map(float.is_integer, map(float, values.values()))):
        least = max(least, _FEW_STEPS, _PART * abs(middle))
    return {index for index, distance in away.items() if distance > least}
