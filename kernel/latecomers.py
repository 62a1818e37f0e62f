"""Which ranks come late to collectives, so that the others wait: by the times at which each issued them. Pure.

A slow rank shows nowhere else: every rank of a step takes as long as the slowest, which is the only one that does not
wait. Each line of the user's that issues collectives is looked at by itself, as a rank that is late to the first of a
step is in time for the others. Times are compared on one host only, as the clocks of two differ by more than what is
looked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median_low

from ..runtime.ranges import named
from ..runtime.ranks.ledger import Entry, RankLedger
from .ledger import ROOTED, History, group_text, histories, place_text
from .source import name_of

_FEWEST = 5
"""So many delays make a habit. One that is much longer than the others counts as one by itself."""

_MOSTLY = 2 / 3
"""The part of what is waited at a line that such a rank was late. Half of it is what chance does to each of two."""

_LEAST_SECONDS = 0.001
"""What counts as late."""

_LEAST_PART = 0.02
"""The part of the time that must be lost to be worth a word."""


@dataclass(frozen=True, slots=True)
class Late:
    """Ranks that were late to collectives of a group, where some of its lines issued them."""

    what: str
    """To which: `all_reduce at cell 5, line 3`, or `collectives of the default group` if at all of several lines."""
    ranks: tuple[int, ...]
    delay: float
    """Seconds by which they came later than at least half of the ranks there, as it weighs in what was waited."""
    waited: float
    """Seconds that the others waited for them."""
    seconds: float
    """From the first collective of the group to its last."""

    @property
    def part(self) -> float:
        """Of the time: what was waited."""
        return self.waited / self.seconds

    @property
    def text(self) -> str:
        """Example: `rank 3 comes 12 ms late to barrier at cell 5, line 3: 31 % of 2 s were waiting for it`."""
        comes, it = ("comes", "it") if len(self.ranks) == 1 else ("come", "them")
        waited = f"{100 * self.part:.0f} % of {_text(self.seconds)} were waiting for {it}"
        return f"{named(self.ranks)} {comes} {_text(self.delay)} late to {self.what}: {waited}"


@dataclass(frozen=True, slots=True)
class _Meeting:
    """One collective, as the ranks of a host came to it."""

    line: str
    """What was called, and where."""
    times: Mapping[int, float]
    """When each came."""
    delays: Mapping[int, float]
    """By how much each came later than at least half of them, without what others have held it for before."""
    went_on: float
    """When half of those who were there issued the next: what does not wait by itself was not waited for until then."""

    def waited(self, late: Iterable[int]) -> tuple[float, float]:
        """From when to when for these ranks."""
        latest = max(late, key=self.delays.__getitem__)
        return self.times[latest] - self.delays[latest], min(self.times[latest], self.went_on)


def latecomers(ledgers: Mapping[int, RankLedger], hosts: Mapping[int, str]) -> list[Late]:
    """Who keeps others waiting, for each group and host; ranks that are not in `hosts` are on one of their own.

    Example:
        >>> from meshbook.runtime.ranks.ledger import Group
        >>> group = Group("0", "gloo", "default_pg", (0, 1, 2))
        >>> def told(late):
        ...     issued = [Entry(0, n, "barrier", "barrier", (), (), False, 9 - n - late, "", 0) for n in range(1, 7)]
        ...     return RankLedger((group,), tuple(issued), read_at=100.0)
        >>> [late.text for late in latecomers({0: told(0.0), 1: told(0.0), 2: told(0.25)}, {})]
        ['rank 2 comes 250 ms late to barrier at an unknown line: 29 % of 5.25 s were waiting for it']
    """
    on_host: dict[str, list[int]] = {}
    for rank in ledgers:
        on_host.setdefault(hosts.get(rank, ""), []).append(rank)
    clocks = {rank: _Clock.of(ledger) for rank, ledger in ledgers.items()}
    return [
        late
        for history in histories(ledgers)
        for ranks in on_host.values()
        for late in _Company(history, sorted({*ranks} & {*history.by_rank}), clocks).late()
    ]


@dataclass(frozen=True, slots=True)
class _Clock:
    """When a rank issued what, in seconds since 1970 by the clock of its host."""

    read_at: float
    _before: Mapping[tuple[int, int], Entry]
    _after: Mapping[tuple[int, int], Entry]
    """What it issued before and after each, in whatever group."""

    @staticmethod
    def of(ledger: RankLedger) -> _Clock:
        pairs = list(pairwise(sorted(ledger.entries, key=lambda entry: -entry.seconds)))
        before = {(after.group, after.number): before for before, after in pairs}
        return _Clock(ledger.read_at, before, {(before.group, before.number): after for before, after in pairs})

    def issued(self, entry: Entry) -> float:
        return self.read_at - entry.seconds

    def went_on(self, entry: Entry) -> float:
        after = self._after.get((entry.group, entry.number))
        return math.inf if after is None else self.issued(after)

    def before(self, entry: Entry) -> Entry | None:
        return self._before.get((entry.group, entry.number))


@dataclass(slots=True)
class _Company:
    """The ranks of one group on one host, and what they issued in it."""

    history: History
    ranks: Sequence[int]
    clocks: Mapping[int, _Clock]
    _times: dict[int, dict[int, float]] = field(default_factory=dict[int, dict[int, float]])

    def late(self) -> Iterator[Late]:
        meetings = list(self._meetings()) if len(self.ranks) > 1 else []
        by_line: dict[str, list[_Meeting]] = {}
        for meeting in meetings:
            by_line.setdefault(meeting.line, []).append(meeting)
        lines_of: dict[tuple[int, ...], list[str]] = {}
        for line, there in by_line.items():
            if late := _mostly_late(there, self.ranks):
                lines_of.setdefault(late, []).append(line)
        for late, lines in lines_of.items():
            met = [meeting for meeting in meetings if meeting.line in lines]
            waited = _covered(meeting.waited(late) for meeting in met)
            seconds = max(meetings[-1].times.values()) - median_low(meetings[0].times.values())
            if waited > _LEAST_PART * seconds:
                delay = max(_weighed([meeting.delays[rank] for meeting in met]) for rank in late)
                is_all = all(line in lines for line, there in by_line.items() if len(there) >= _FEWEST)
                yield Late(_what(self.history, lines, is_all), late, delay, waited, seconds)

    def _meetings(self) -> Iterator[_Meeting]:
        """The collectives that all have issued, the oldest first, none from before the last cell."""
        met: list[_Meeting] = []
        cell = ""
        for number in reversed(self.history.numbers):
            if not self._came(number):
                continue
            file = self.history.by_rank[self.ranks[0]][number].file
            if name_of(file):
                if cell not in ("", file):
                    break
                cell = file
            met.append(self._meeting(number))
        return reversed(met)

    def _came(self, number: int) -> dict[int, float]:
        """When each issued the collective of this number; none if not all have."""
        if number not in self._times:
            here = self.history.at(number)
            is_whole = all(rank in here for rank in self.ranks)
            self._times[number] = {r: self.clocks[r].issued(here[r]) for r in self.ranks} if is_whole else {}
        return self._times[number]

    def _meeting(self, number: int) -> _Meeting:
        here, times = self.history.at(number), self._came(number)
        start = median_low(times.values())
        went_on = median_low([self.clocks[rank].went_on(here[rank]) for rank, time in times.items() if time <= start])
        delays = {
            rank: max(0.0, time - start - self._held(here[rank], rank, time - start)) for rank, time in times.items()
        }
        first = here[self.ranks[0]]
        return _Meeting(f"{first.call} at {place_text(first)}", times, delays, went_on)

    def _held(self, entry: Entry, rank: int, delay: float) -> float:
        """Of the delay of a rank, what others may have caused that came late to what it issued before.

        Where all wait for all they go on together. What is around one rank, which is not known, holds some for longer.
        """
        before = self.clocks[rank].before(entry)
        if delay < _LEAST_SECONDS or before is None or before.op not in ROOTED:
            return 0.0
        times = self._came(before.number)
        if not times or self.history.by_rank[rank].get(before.number) is not before:  # of another group
            return math.inf
        if len(self.ranks) == len(self.history.group.ranks or ()):
            return max(times.values()) - times[rank]
        own = times[rank] - median_low(times.values())  # of those on other hosts it is not known when they came
        return max(0.0, delay - own)


def _what(history: History, lines: Sequence[str], is_all: bool) -> str:
    of = group_text(history.group)
    if is_all and len(lines) > 1:
        return f"collectives of {of}"
    others = f" and {len(lines) - 1} other line{'s' * (len(lines) > 2)}" if len(lines) > 1 else ""
    return lines[0] + others + ("" if history.group.about == "default_pg" else f" (of {of})")


def _mostly_late(meetings: Sequence[_Meeting], ranks: Sequence[int]) -> tuple[int, ...]:
    waited = sum(max(_counted(meeting.delays.values())) for meeting in meetings)
    found: list[int] = []
    for rank in ranks:
        delays = _counted(meeting.delays[rank] for meeting in meetings)
        if waited and sum(delays) >= _MOSTLY * waited and _num_alike(delays) > _FEWEST - 0.5:
            found.append(rank)
    return tuple(found)


def _counted(delays: Iterable[float]) -> list[float]:
    return [delay if delay >= _LEAST_SECONDS else 0.0 for delay in delays]


def _num_alike(delays: Sequence[float]) -> float:
    """As how many equal delays these weigh: Kish's effective sample size.

    Example:
        >>> _num_alike([2, 2, 0, 2]), round(_num_alike([100, 1, 1, 1]), 2)
        (3.0, 1.06)
    """
    squares = sum(delay**2 for delay in delays)
    return sum(delays) ** 2 / squares if squares else 0.0


def _weighed(delays: Sequence[float]) -> float:
    """Their mean, in which each counts as much as it is long: of many short ones and a few long the long are told."""
    counted = _counted(delays)
    return sum(delay**2 for delay in counted) / sum(counted)


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """The length of what these spans cover, in order of their beginnings.

    Example:
        >>> _covered([(0, 3), (1, 2), (2, 4), (6, 7), (9, 8)])
        5.0
    """
    length, reached = 0.0, float("-inf")
    for start, end in spans:
        length += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return length


def _text(seconds: float) -> str:
    """Example: `12 ms`, `1.5 s`."""
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
