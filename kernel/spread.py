"""Lines of many ranks that differ in their numbers alone: one line, each number from the least to the most. Pure.

The losses of 64 ranks are 64 lines a step, which nobody reads, and the cell's budget of lines is gone in a few steps.
The odd one out keeps a line of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from .chance import without_addresses
from .stamps import parted

if TYPE_CHECKING:
    from .fold import FoldedLine

MOST_ALONE: Final = 8
"""So many lines that differ in their numbers are told one by one."""

_FAR: Final = 10
"""So many times as far from the median as half of the numbers lie at most, and a number is an odd one."""

_LONGEST: Final = 2_000
"""Characters of a line that is looked at."""

_NUMBER: Final = re.compile(
    r"""(\x1b\[[\d;]*[A-Za-z])  # a colour, whose numbers mean something else
    | (?<!\ )(\ *+)  # digits that are aligned have more of them or less
      ( (?: (?<![\w.)\]-])[-+] )?
        (?: \d{1,3}(?:,\d{3})+(?:\.\d+)? | \d+(?:\.\d+|\.(?!\w))? | (?<![\w.])\.\d+ )
        (?: [eE][-+]?\d+ )? )""",
    re.VERBOSE,
)
_DIGITS: Final = re.compile(r"\d+")


_MOST_KINDS: Final = 1_000

_Kind = tuple[object, ...]
"""What lines are alike in that differ in their numbers alone."""


class _Read(NamedTuple):
    """A line, read: what stands around its numbers, these as they were written, and the blanks before each."""

    stamp: str
    around: tuple[str, ...]
    numbers: tuple[str, ...]
    pads: tuple[str, ...]

    @property
    def kind(self) -> tuple[str, ...]:
        return (_DIGITS.sub("", self.stamp), *self.around)


class _Said(NamedTuple):
    """Lines that the same ranks have said, one after the other."""

    lines: list[FoldedLine]
    reads: list[_Read]

    @property
    def ranks(self) -> tuple[int, ...]:
        return self.lines[0].ranks

    @property
    def kind(self) -> _Kind:
        return tuple((line.stream, read.kind) for line, read in zip(self.lines, self.reads, strict=True))

    @property
    def values(self) -> list[float]:
        return [_value(number) for read in self.reads for number in read.numbers]


class Gatherer:
    """Tells lines of many ranks as one.

    Example:
        >>> from .fold import FoldedLine
        >>> said = [FoldedLine((rank,), "stdout", f"rank {rank}: loss {2 - rank / 16}") for rank in range(16)]
        >>> [line.text for line in Gatherer().gather(said)]
        ['rank 0…15: loss 1.0625…2.0']
    """

    def __init__(self) -> None:
        self._known = set[_Kind]()  # of these some were told as one: all are, from then on

    def gather(self, lines: Sequence[FoldedLine]) -> list[FoldedLine]:
        """The same lines, but more than `MOST_ALONE` that differ in their numbers alone as one."""
        paragraphs = [list(each) for _, each in groupby(lines, key=lambda line: line.ranks)]
        return [line for turn in _turns(paragraphs) for told in self._told(turn) for line in told]

    def _told(self, turn: list[list[FoldedLine]]) -> list[list[FoldedLine]]:
        by_kind: dict[_Kind, dict[int, _Said]] = {}
        for index, paragraph in enumerate(turn):
            if _is_readable(paragraph):
                said = _said(paragraph)
                by_kind.setdefault(said.kind, {})[index] = said
        told = turn.copy()
        for kind, alike in by_kind.items():
            if usual := self._usual(kind, alike):
                told[usual[0]] = _spread([alike[index] for index in usual])
                for index in usual[1:]:
                    told[index] = []
        return told

    def _usual(self, kind: _Kind, alike: dict[int, _Said]) -> list[int]:
        """Those that are told as one, by index; none where there are few."""
        most_alone = 1 if kind in self._known else MOST_ALONE
        odd = _odd(alike) if len(alike) > most_alone else set[int]()
        usual = [index for index in alike if index not in odd]
        if len(usual) <= most_alone:
            return []
        if len(self._known) < _MOST_KINDS:
            self._known.add(kind)
        return usual


def _turns(paragraphs: Sequence[list[FoldedLine]]) -> Iterator[list[list[FoldedLine]]]:
    """Neighbours of different ranks: among them any order is as good."""
    turn: list[list[FoldedLine]] = []
    ranks = set[int]()
    for lines in paragraphs:
        if not ranks.isdisjoint(lines[0].ranks):
            yield turn
            turn, ranks = [], set[int]()
        turn.append(lines)
        ranks.update(lines[0].ranks)
    if turn:
        yield turn


def _is_readable(lines: list[FoldedLine]) -> bool:
    return not any(line.is_bar or len(line.text) > _LONGEST for line in lines)


def _said(lines: list[FoldedLine]) -> _Said:
    return _Said(lines, [_read(line.text) for line in lines])


def _read(text: str) -> _Read:
    stamp, body = parted(text)
    if " at 0x" in body:
        body = without_addresses(body)
    parts = _NUMBER.split(body)
    if "\x1b" in body:
        parts = _without_colours(parts)
    return _Read(stamp, tuple(parts[::4]), tuple(parts[3::4]), tuple(parts[2::4]))


def _without_colours(parts: list[str]) -> list[str]:
    """Text, colour, blanks, number, text and so on; the colours become a part of the text around them."""
    left = parts[:1]
    for colour, pad, number, text in zip(*(parts[at::4] for at in (1, 2, 3, 4)), strict=True):
        if colour:
            left[-1] += colour + text
        else:
            left += ["", pad, number, text]
    return left


def _value(number: str) -> float:
    return float(number.replace(",", ""))


def _odd(alike: dict[int, _Said]) -> set[int]:
    """Which of them, by index, have a number that is far from those of most; not too many."""
    odd = set[int]()
    for values in zip(*(said.values for said in alike.values()), strict=True):
        far = _far(dict(zip(alike, values, strict=True)))
        odd |= far if len(far) <= MOST_ALONE else set()
    return odd if len(odd) <= MOST_ALONE else set()


def _far(values: dict[int, float]) -> set[int]:
    """Those that lie apart from the others. Of numbers that lie evenly, such as ranks, none does."""
    middle = median(values.values())
    away = {index: abs(value - middle) for index, value in values.items()}
    usual = median(away.values())
    return {index for index, distance in away.items() if distance > _FAR * usual}


def _spread(said: Sequence[_Said]) -> list[FoldedLine]:
    """Line by line as the first of them, with the least and the most of each number."""
    ranks = tuple(sorted(rank for each in said for rank in each.ranks))
    first = min(said, key=lambda each: each.ranks)
    return [
        line._replace(ranks=ranks, text=_text([each.reads[index] for each in said], read), is_spread=True)
        for index, (line, read) in enumerate(zip(first.lines, first.reads, strict=True))
    ]


def _text(reads: Sequence[_Read], first: _Read) -> str:
    pads = [min(pads, key=len) for pads in zip(*(read.pads for read in reads), strict=True)]
    spans = [_span(numbers) for numbers in zip(*(read.numbers for read in reads), strict=True)]
    return first.stamp + "".join(map("".join, zip(first.around, [*pads, ""], [*spans, ""], strict=True)))


def _span(numbers: Sequence[str]) -> str:
    if len(set(numbers)) == 1:
        return numbers[0]
    return f"{min(numbers, key=_value)}…{max(numbers, key=_value)}"
