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
    """Who keeps others waiting, for each host and group; ranks that are not in `hosts` are on one of their own.

    Example:
        >>> from meshbook.runtime.ranks.ledger import Group
        >>> group = Group("0", "gloo", "default_pg", (0, 1, 2))
        >>> def told(late):
        ...     issued = [Entry(0, n, "barrier", "barrier", (), (), False, 9 - n - late, "", 0) for n in range(1, 7)]
        ...     return RankLedger((group,), tuple(issued), read_at=100.0)
        >>> [late.text for late in latecomers({0: told(0.0), 1: told(0.0), 2: told(0.25)}, {})]
        ['rank 2 comes 250 ms late to barrier at an unknown line: 29 % of 5.25 s were waiting for it']
    """
    on_host: dict[str, set[int]] = {}
    for rank in ledgers:
        on_host.setdefault(hosts.get(rank, ""), set()).add(rank)
    told = histories(ledgers)
    return [late for ranks in on_host.values() for late in _of_host(told, ledgers, ranks)]


def _of_host(told: Iterable[History], ledgers: Mapping[int, RankLedger], ranks: set[int]) -> Iterator[Late]:
    here = [(history, sorted(ranks & history.by_rank.keys())) for history in told]
    companies = [_Company.of(history, members, ledgers) for history, members in here if members]
    for rank in ranks:
        _follow(rank, companies)
    across = [set(company.ranks) for company in companies if not company.is_whole]
    for company in companies:
        # Where others on other hosts may have held some of them, and not all, it is not known for how long.
        if all(some.isdisjoint(company.ranks) or some.issuperset(company.ranks) for some in across):
            yield from company.late()


@dataclass(slots=True)
class _Step:
    """What one rank did in one collective."""

    time: float
    """When it issued it, in seconds since 1970 by the clock of its host."""
    entry: Entry
    freed: float = -math.inf
    """Until when others have held it before: the last came then to something that it had issued."""
    went_on: float = math.inf
    """When it issued the next, in whatever group."""
    inherited: float = math.inf
    """All that its delay can be, where it is not known who has held it: what it was before."""


@dataclass(slots=True)
class _Collective:
    """One collective of a group, as far as ranks of one host have issued it."""

    steps: dict[int, _Step] = field(default_factory=dict[int, _Step])
    start: float = 0.0
    """When at least half of them were there."""
    last: float = -math.inf
    last_but_one: float = -math.inf

    def settle(self) -> None:
        times = sorted(step.time for step in self.steps.values())
        self.start = times[(len(times) - 1) // 2]
        self.last, self.last_but_one = times[-1], times[-2] if len(times) > 1 else -math.inf

    def last_without(self, step: _Step) -> float:
        """When the last of the others came."""
        return self.last_but_one if step.time == self.last else self.last


@dataclass(slots=True)
class _Company:
    """The ranks of one group on one host, and what they issued in it."""

    history: History
    ranks: Sequence[int]
    is_whole: bool
    """Are these all ranks of the group?"""
    collectives: Mapping[int, _Collective]
    """By number."""

    @staticmethod
    def of(history: History, ranks: Sequence[int], ledgers: Mapping[int, RankLedger]) -> _Company:
        collectives: dict[int, _Collective] = {}
        for rank in ranks:
            read_at = ledgers[rank].read_at
            for number, entry in history.by_rank[rank].items():
                collectives.setdefault(number, _Collective()).steps[rank] = _Step(read_at - entry.seconds, entry)
        for collective in collectives.values():
            collective.settle()
        return _Company(history, ranks, len(ranks) == len(history.group.ranks or ()), collectives)

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
        for number in sorted(self.collectives, reverse=True):
            collective = self.collectives[number]
            if len(collective.steps) < len(self.ranks):
                continue
            file = collective.steps[self.ranks[0]].entry.file
            if name_of(file):
                if cell not in ("", file):
                    break
                cell = file
            met.append(_meeting(collective, self.ranks[0]))
        return reversed(met)


def _meeting(collective: _Collective, first: int) -> _Meeting:
    steps, start = collective.steps, collective.start
    return _Meeting(
        f"{steps[first].entry.call} at {place_text(steps[first].entry)}",
        {rank: step.time for rank, step in steps.items()},
        {rank: max(0.0, min(step.time - max(start, step.freed), step.inherited)) for rank, step in steps.items()},
        median_low([step.went_on for step in steps.values() if step.time <= start]),
    )


def _follow(rank: int, companies: Sequence[_Company]) -> None:
    """Note on all steps of a rank what came before and after, and until when others have held it."""
    taken = [
        (collective.steps[rank], collective, company)
        for company in companies
        for collective in company.collectives.values()
        if rank in collective.steps
    ]
    freed, to_come = -math.inf, list[float]()
    before: tuple[_Step, _Collective, _Company] | None = None
    for step, collective, company in sorted(taken, key=lambda each: each[0].time):
        freed = max([freed, *(moment for moment in to_come if moment <= step.time)])
        to_come = [moment for moment in to_come if moment > step.time]
        step.freed = freed
        if before is not None:
            former, there, others = before
            former.went_on = step.time
            if not others.is_whole and former.entry.op in ROOTED:  # it may have held some of them, and not all
                step.inherited = former.time - there.start
        to_come.append(collective.last_without(step))
        before = step, collective, company


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
