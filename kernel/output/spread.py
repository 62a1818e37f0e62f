"""Lines of many ranks that differ in their numbers alone: one line, each number from the least to the most. Pure.

The losses of 64 ranks are 64 lines a step, which nobody reads, and the cell's budget of lines is gone in a few steps.
The odd one out keeps a line of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from ...runtime.numerals import LEAST_ALIKE, Read, odd_ones, read, spread
from ..values.chance import without_addresses
from .stamps import parted
from .weave import FoldedLine

MOST_ALONE: Final = 8
"""So many lines that differ in their numbers are told one by one."""

LEAST_RANKS: Final = 3
"""Of two, what each says is as short as what both do."""

FLOOD: Final = 2_000
"""More lines of few ranks at once are read by nobody, and not looked at."""

_LONG: Final = 80
"""Lines of one kind that were told one by one, as in a loop: from then on they are told as one."""

_LONGEST: Final = 2_000
"""Characters of a line that is looked at."""

_MOST_KINDS: Final = 1_000

_DIGITS: Final = re.compile(r"\d+")

_Kind = tuple[object, ...]
"""What lines are alike in that differ in their numbers alone."""


class _Said(NamedTuple):
    """Lines that the same ranks have said, one after the other: with their stamps, and without them, read."""

    lines: list[FoldedLine]
    stamps: list[str]
    reads: list[Read]

    @property
    def kind(self) -> _Kind:
        kinds = zip(self.lines, self.stamps, self.reads, strict=True)
        return tuple((line.stream, _DIGITS.sub("", stamp), each.around) for line, stamp, each in kinds)

    @property
    def values(self) -> list[float]:
        return [value for each in self.reads for value in each.values]


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
        self._alone = Counter[_Kind]()  # lines that were told one by one
        self._speakers: dict[_Kind, set[int]] = {}  # who has said them

    def gather(self, lines: Sequence[FoldedLine]) -> list[FoldedLine]:
        """The same lines, but more than `MOST_ALONE` that differ in numbers alone as one; in a long loop fewer, too."""
        paragraphs = [list(each) for _, each in groupby(lines, key=lambda line: line.ranks)]
        return [line for turn in _turns(paragraphs) for told in self._told(turn) for line in told]

    def knows(self, line: FoldedLine) -> bool:
        """Are lines like this one told as one?"""
        return bool(self._known) and _is_readable([line]) and _said([line]).kind in self._known

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
        if len(alike) <= most_alone:
            self._count(kind, alike.values())
            return []
        values = {index: said.values for index, said in alike.items()}
        odd = odd_ones(values) if len(alike) >= LEAST_ALIKE else set[int]()
        usual = [index for index in alike if index not in odd]
        if len(usual) <= most_alone:
            return []
        self._know(kind)
        return usual

    def _count(self, kind: _Kind, alike: Iterable[_Said]) -> None:
        if kind not in self._alone and len(self._alone) >= _MOST_KINDS:
            return
        speakers = self._speakers.setdefault(kind, set())
        for said in alike:
            self._alone[kind] += len(said.lines)
            speakers.update(said.lines[0].ranks)
        if self._alone[kind] >= _LONG and len(speakers) >= LEAST_RANKS:
            self._know(kind)

    def _know(self, kind: _Kind) -> None:
        if len(self._known) < _MOST_KINDS:
            self._known.add(kind)


def in_rounds(lines: Iterable[FoldedLine], said: Mapping[int, Sequence[FoldedLine]]) -> list[FoldedLine]:
    """What ranks have said beside these lines, a line of each in turn; first those that have said fewer of them."""
    counts = Counter(rank for line in lines for rank in line.ranks)
    rounds = [(counts[rank] + number, line) for rank, each in said.items() for number, line in enumerate(each)]
    return [line for _, line in sorted(rounds, key=lambda each: each[0])]


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
    parts = [parted(line.text) for line in lines]
    reads = [read(without_addresses(body) if " at 0x" in body else body) for _, body in parts]
    return _Said(lines, [stamp for stamp, _ in parts], reads)


def _spread(said: Sequence[_Said]) -> list[FoldedLine]:
    """Line by line as the first of them, with the least and the most of each number."""
    ranks = tuple(sorted(rank for each in said for rank in each.lines[0].ranks))
    first = min(said, key=lambda each: each.lines[0].ranks)
    return [
        line._replace(ranks=ranks, text=stamp + spread([each.reads[index] for each in said]), is_spread=True)
        for index, (line, stamp) in enumerate(zip(first.lines, first.stamps, strict=True))
    ]
