"""Folding: what equal ranks say is told once.

`LineFolder` merges the lines that ranks print, live. `ranks_text` and `coords_text` name a group of ranks in few
characters. All of it is pure: time is an argument.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from .lines import BAR, CUT, MARK, STREAM, Cutter, Stream, Tail
from .spread import FLOOD, LEAST_RANKS, MOST_ALONE, Gatherer, in_rounds
from .stamps import said_by_many, unstamped

_LEAST_TAIL: Final = 200
"""Fewer characters than these of a rank's last lines tell nothing: then fewer ranks are shown."""
_CHAIN: Final = 8
_LEAST_STEPS: Final = 5
"""So many ranks that lie evenly apart are told by their step."""
_PATIENCE: Final = 0.3
"""Seconds that an unfinished line may have: most end soon."""


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


class FoldedGap(NamedTuple):
    """What is left out of the notebook; the ranks' logs have it all."""

    lines: int
    """Counted a rank: a line that eight ranks said is eight lines. 0: the rest of a line of which the end is told."""
    bytes: int
    num_ranks: int
    """Whose lines these are."""


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


class _Voice:
    """One rank in a `LineFolder`: its finished lines that wait to be told, how they compare, and when they came."""

    __slots__ = ("cutter", "keys", "lines", "rank", "size", "tail", "times")

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.cutter = Cutter()
        self.lines: list[str] = []
        self.keys: list[str] = []
        self.times: list[float] = []
        self.size = 0
        self.tail: Tail | None = None

    def say(self, lines: list[str], now: float) -> None:
        self.lines += lines
        self.keys += [line[0] + unstamped(line[1:]) for line in lines]
        self.times += [now] * len(lines)
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
        kept = _fitting(self.lines, room)
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


class LineFolder:
    """Merges what ranks print, live: a line that several ranks say is told once, with all their ranks.

    `feed` it text as it comes and `poll` it often; at the end of the run `finish` it. Each rank's own order
    is kept. A line waits `window` seconds at most for the ranks that have not said it yet, and not at all
    once all have. At most `budget` bytes are told: two thirds of them as they come, the last third at the end, after a
    gap. A line counts `margin` bytes more than its text, for what is written around it. Lines that differ only in their
    stamps are the same; that of the lowest rank is told. Where it `spreads`, many that differ in numbers alone are one.

    Example:
        >>> folder = LineFolder([0, 1])
        >>> folder.feed(0, "stdout", "step 0\\n", now=0.0)
        >>> folder.feed(1, "stdout", "step 0\\nloss is nan\\n", now=0.01)
        >>> [(line.ranks, line.text) for line in folder.poll(now=0.02)]
        [((0, 1), 'step 0')]
        >>> [(line.ranks, line.text) for line in folder.finish(now=0.03)]
        [((1,), 'loss is nan')]
    """

    def __init__(
        self,
        ranks: Sequence[int],
        window: float = 0.05,
        budget: int = 48_000,
        margin: int = 0,
        *,
        spreads: bool = False,
    ) -> None:
        self._gatherer = Gatherer() if spreads else None
        self._voices = {rank: _Voice(rank) for rank in sorted(ranks)}
        self._window = window
        self._margin = margin
        self._room = budget - budget // 3
        self._tail_budget = max(budget // 3, 1)

    @property
    def is_full(self) -> bool:
        """Has more come than the budget has room for? What its rank says from then on is told at the end."""
        return any(voice.tail is not None for voice in self._voices.values())

    @property
    def is_waiting(self) -> bool:
        """Is there a line that was not told yet, be it unfinished?"""
        return any(voice.lines or voice.cutter.has_rest for voice in self._voices.values() if voice.tail is None)

    def feed(self, rank: int, stream: Stream, text: str, now: float) -> None:
        """Take text that a rank wrote: any piece of any number of lines."""
        voice = self._voices[rank]
        if voice.tail:
            return voice.tail.add(stream, text)
        voice.say(voice.cutter.cut(stream, text, now), now)
        if voice.size > self._room:
            voice.spill(self._room, self._tail_budget)

    def poll(self, now: float) -> list[FoldedLine]:
        """The lines that are due."""
        for voice in self._voices.values():
            voice.lose_patience(now - self._window)
        return self._admit(self._merged(self._voices.values(), now - self._window))

    def unfinished(self, now: float) -> dict[tuple[int, Stream], str]:
        """The last state of each rank's unfinished line: the one that it wrote to last, if all before it was told.

        Of those that are not rewritten in place (a progress bar is), only what is older than 0.3 seconds.
        Blank is a bar that was erased.
        """
        states: dict[tuple[int, Stream], str] = {}
        for voice in self._voices.values():
            stream = voice.cutter.last
            line = voice.cutter.open[stream]
            text = line.text()
            is_due = line.is_rewritten or (text and line.since <= now - _PATIENCE)
            if is_due and not voice.lines and voice.cutter.held is None and voice.tail is None:
                states[voice.rank, stream] = text
        return states

    def add(self, ranks: Iterable[int]) -> None:
        """Fold what these ranks say too."""
        for rank in ranks:
            self._voices.setdefault(rank, _Voice(rank))

    def flush(self, now: float) -> list[FoldedLine]:
        """All that waits, also unfinished lines; more may come."""
        for voice in self._voices.values():
            if voice.tail is None:
                voice.say(voice.cutter.rest(), now)
        return self._admit(self._merged(self._voices.values(), now))

    def finish(self, now: float) -> list[FoldedLine | FoldedGap]:
        """All that is left: what waited, and where it was too much a `FoldedGap` and the last lines."""
        return [*self.flush(now), *self._ending(now)]

    def _admit(self, lines: list[FoldedLine]) -> list[FoldedLine]:
        """Charge lines to the budget; from the first that does not fit on, all goes over it."""
        count = 0
        for line in lines:
            cost = _size(line.text) + 1 + self._margin
            if line.is_spread:
                cost += len(line.ranks) // 2  # it takes work for each, which the budget bounds too
            if cost > self._room:
                break
            self._room -= cost
            count += 1
        if count == len(lines):
            return lines
        self._room = 0
        for voice in self._voices.values():
            voice.spill(0, self._tail_budget)
        for line in reversed(lines[count:]):
            for rank in line.ranks:
                tail = self._voices[rank].tail
                assert tail is not None
                tail.prepend((BAR if line.is_bar else MARK[line.stream]) + line.text)
        return lines[:count]

    def _ending(self, now: float) -> list[FoldedLine | FoldedGap]:
        tails = {voice.rank: voice.tail for voice in self._voices.values() if voice.tail}
        lines = {rank: tail.lines() for rank, tail in tails.items()}
        shown = [_Voice(rank) for rank in tails]
        for voice, last in zip(shown, _last_lines(lines, self._tail_budget, self._margin), strict=True):
            voice.say(last, now)
        num_lines = sum(tail.num_lines for tail in tails.values()) - sum(len(voice.lines) for voice in shown)
        num_bytes = sum(tail.num_bytes for tail in tails.values()) - sum(voice.size for voice in shown)
        is_cut = any(line[1:].startswith(CUT) for voice in shown for line in voice.lines)
        gap = [FoldedGap(num_lines, max(num_bytes, 0), len(tails))] if num_lines or (is_cut and num_bytes > 0) else []
        return [*gap, *self._merged(shown, now)]

    def _merged(self, voices: Collection[_Voice], due: float) -> list[FoldedLine]:
        lines = _merge(list(voices), due)
        most = FLOOD if len(self._voices) <= MOST_ALONE else len(lines)
        if self._gatherer is None or len(self._voices) < LEAST_RANKS or len(lines) > most:
            return lines
        if any(map(self._gatherer.knows, lines)):
            lines += in_rounds(lines, {voice.rank: voice.take(self._gatherer.knows) for voice in voices})
        return self._gatherer.gather(lines)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _fitting(lines: Sequence[str], room: int, margin: int = 0) -> int:
    """How many lines, from the first on, fit into `room` bytes."""
    for count, line in enumerate(lines):
        room -= _size(line) + margin
        if room < 0:
            return count
    return len(lines)


def _last_lines(lines: Mapping[int, list[str]], budget: int, margin: int) -> list[list[str]]:
    """The last lines of each rank: an equal share for each different text, which ranks that say it share."""
    groups: dict[tuple[str, ...], int] = {}
    for said in filter(None, lines.values()):
        groups.setdefault(tuple(said), len(groups))
    share = max(budget // max(len(groups), 1), min(_LEAST_TAIL, budget))
    num_shown = budget // max(share, 1)
    return [_last(said, share, margin) if said and groups[tuple(said)] < num_shown else [] for said in lines.values()]


def _last(lines: list[str], share: int, margin: int) -> list[str]:
    count = _fitting(lines[::-1], share, margin)
    if count or share < 4:
        return lines[len(lines) - count :]
    mark, text = lines[-1][0], lines[-1][1:].removeprefix(CUT)  # of one that was cut before
    return [f"{mark}{CUT}{text[-(share - 3) :]}"]


def _merge(voices: Sequence[_Voice], due: float) -> list[FoldedLine]:
    """Take out of the voices what all have said, and all that came at `due` or before."""
    lines = _said_by_all(voices)
    while any(voice.times and voice.times[0] <= due for voice in voices):
        lines += _Weave(voices).run(due)
        lines += _said_by_all(voices)
    return lines


def _said_by_all(voices: Sequence[_Voice]) -> list[FoldedLine]:
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

    def __init__(self, voices: Sequence[_Voice]) -> None:
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
