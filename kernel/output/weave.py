"""What several voices say, in one sequence: equal lines together where their orders allow. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from .lines import BAR, STREAM, Cutter, Stream, Tail, fitting
from .stamps import said_by_many, unstamped

_CHAIN: Final = 8


# A NamedTuple as it is made once a line: a frozen dataclass takes three times as long to make.
class FoldedLine(NamedTuple):
    """One line and all the ranks that said it."""

    ranks: tuple[int, ...]
    stream: Stream
    text: str
    """Without its newline."""
    is_bar: bool = False
    """Of stderr, but progress, and no complaint."""
    is_spread: bool = False
    """Its numbers are those of all its ranks, from the least to the most (see `spread`)."""


_Lines = tuple[list[str], list[str], list[float]]


class Voice:
    """One rank in a `LineFolder`: its finished lines that wait to be told, how they compare, and when they came."""

    __slots__ = ("_begun", "_num_said", "cutter", "keys", "lines", "rank", "size", "tail", "times")

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.cutter = Cutter()
        self.lines: list[str] = []
        self.keys: list[str] = []
        self.times: list[float] = []
        self.size = 0
        self.tail: Tail | None = None
        self._num_said = 0
        self._begun: dict[Stream, int] = {}  # how many lines it had said when the unfinished one began

    def hear(self, stream: Stream, text: str, now: float) -> None:
        """Take text that its rank wrote."""
        begins = self.cutter.open[stream].is_empty or "\n" in text
        self.say(self.cutter.cut(stream, text, now), now)
        if begins:  # behind a bar that may have ended, too
            self._begun[stream] = self._num_said + (self.cutter.held is not None)

    def hold_back(self) -> _Lines | None:
        """Put aside the lines before which a bar begins that has not been overtaken yet, until they are `put_back`."""
        num_told = self._num_said - len(self.lines)
        starts = [
            self._begun.get(stream, 0) - num_told for stream, line in self.cutter.open.items() if line.is_rewritten
        ]
        at = min((start for start in starts if 0 < start < len(self.lines)), default=0)
        if not at:
            return None
        held = self.lines[at:], self.keys[at:], self.times[at:]
        del self.lines[at:], self.keys[at:], self.times[at:]
        return held

    def put_back(self, held: _Lines) -> None:
        lines, keys, times = held
        self.lines += lines
        self.keys += keys
        self.times += times

    def overtaken(self) -> dict[tuple[int, Stream], str]:
        """The last states of its bars that began before the lines that wait."""
        num_told = self._num_said - len(self.lines)
        return {
            (self.rank, stream): line.text()
            for stream, line in self.cutter.open.items()
            if line.is_rewritten and self._begun.get(stream, 0) <= num_told
        }

    def say(self, lines: list[str], now: float) -> None:
        self.lines += lines
        self.keys += [line[0] + unstamped(line[1:]) for line in lines]
        self.times += [now] * len(lines)
        self._num_said += len(lines)
        self.size += sum(map(len, lines))  # the mark stands for the newline

    def lose_patience(self, since: float) -> None:
        """A bar whose newline came then, and under which nothing was drawn, has ended."""
        if (held := self.cutter.held) is not None:
            self.say(self.cutter.overdue(since), held.since)

    def take(self, are_told: Callable[[FoldedLine], bool]) -> list[FoldedLine]:
        """Its first lines, as far as they need not wait: others like them are told now."""
        said = [*takewhile(are_told, (_told((self.rank,), line) for line in self.lines))]
        self.drop(len(said))
        return said

    def drop(self, count: int) -> None:
        self.size -= sum(map(len, self.lines[:count]))
        del self.lines[:count], self.keys[:count], self.times[:count]

    def spill(self, room: int, limit: int) -> None:
        """Keep the lines that fit into `room`; those after them, and all to come, go over the budget."""
        kept = fitting(self.lines, room)
        rest = self.lines[kept:]
        del self.lines[kept:], self.keys[kept:], self.times[kept:]
        self.size -= sum(map(len, rest))
        if self.tail is None:
            self.tail = Tail(limit)
            for stream in self.cutter.open:
                self.tail.add(stream, self.cutter.raw(stream))
            self.cutter.held = None
        for line in reversed(rest):
            self.tail.prepend(line)


def merge(voices: Sequence[Voice], due: float) -> list[FoldedLine]:
    """Take out of the voices what all have said, and all that came at `due` or before."""
    lines = _said_by_all(voices)
    while any(voice.times and voice.times[0] <= due for voice in voices):
        lines += _Weave(voices).run(due)
        lines += _said_by_all(voices)
    return lines


def _said_by_all(voices: Sequence[Voice]) -> list[FoldedLine]:
    """The first lines, as long as they are the same in every voice."""
    count = 0
    for row in zip(*[voice.keys for voice in voices], strict=False):
        if row.count(row[0]) < len(row):
            break
        count += 1
    if not count:
        return []
    said = voices[0].lines[:count]
    for voice in voices:
        voice.drop(count)
    ranks = tuple(voice.rank for voice in voices)
    return [_told(ranks, line) for line in said]


def _told(ranks: tuple[int, ...], line: str) -> FoldedLine:
    mark, text = line[0], line[1:]
    return FoldedLine(ranks, STREAM[mark], said_by_many(text) if len(ranks) > 1 else text, mark == BAR)


class _Weave:
    """One pass over voices that differ: all lines in one sequence, equal ones together where orders allow.

    A line is told when no other voice has it further back. Where one has, that voice's earlier lines go
    first, so that one extra line of one rank does not tear apart what it says together with the others.
    """

    def __init__(self, voices: Sequence[Voice]) -> None:
        self._voices = voices
        self._keys = [[*voice.keys, ""] for voice in voices]
        self._heads = [keys[0] for keys in self._keys]
        self._next = [0] * len(voices)
        self._last = set[int]()  # who has said what was told last
        self._holders: dict[str, dict[int, int]] = {}  # key -> voice -> how often it still has it
        for index, voice in enumerate(voices):
            for key in voice.keys:
                if (counts := self._holders.get(key)) is None:
                    self._holders[key] = {index: 1}
                else:
                    counts[index] = counts.get(index, 0) + 1

    def run(self, due: float) -> list[FoldedLine]:
        """Tell what is due, a line of each voice in turn with those that continue it, and take it out of the voices."""
        told: list[FoldedLine] = []
        ends = [bisect_right(voice.times, due) for voice in self._voices]
        turns = [index for index, end in enumerate(ends) if end]
        while turns:
            starts = self._next.copy()
            for index in turns:
                while self._next[index] == starts[index]:
                    told.append(self._tell(index))
                while self._is_continued(index, ends[index]):
                    told.append(self._tell(index))
            turns = [index for index in turns if self._next[index] < ends[index]]
        for voice, count in zip(self._voices, self._next, strict=True):
            voice.drop(count)
        return told

    def _is_continued(self, index: int, end: int) -> bool:
        """Does the next line of this voice belong to the one before, as a row of a printed tensor, which is indented?

        No other turn comes between them, unless another voice says it too that has not said the one before.
        """
        at = self._next[index]
        if at >= end or not self._voices[index].lines[at][1:2].isspace():
            return False
        key = self._heads[index]
        holders = self._holders[key]
        return len(holders) == 1 or (holders.keys() == self._last and all(self._heads[i] == key for i in holders))

    def _is_own(self, index: int) -> bool:
        """Is the next line of this voice no other's?"""
        return len(self._holders[self._heads[index]]) == 1

    def _tell(self, index: int) -> FoldedLine:
        """Tell the next line of a voice, or the one that must go before it."""
        if self._is_own(index):
            indices = [index]
            self._advance(index)
        else:
            indices = self._take(self._free_key(index))
        self._last = set(indices)
        first = indices[0]
        line = self._voices[first].lines[self._next[first] - 1]
        return _told(tuple([self._voices[index].rank for index in indices]), line)

    def _free_key(self, index: int) -> str:
        key = self._heads[index]
        for _ in range(_CHAIN):
            blocker = next((i for i in self._holders[key] if self._heads[i] != key), None)
            if blocker is None:
                return key
            key = self._heads[blocker]
        return self._heads[index]  # the orders contradict each other: some line has to be told twice

    def _take(self, key: str) -> list[int]:
        """Take a line from all voices that have it next."""
        counts = self._holders[key]
        indices = [index for index in counts if self._heads[index] == key]
        for index in indices:
            counts[index] -= 1
            if not counts[index]:
                del counts[index]
            self._advance(index)
        return indices

    def _advance(self, index: int) -> None:
        self._next[index] = position = self._next[index] + 1
        self._heads[index] = self._keys[index][position]
