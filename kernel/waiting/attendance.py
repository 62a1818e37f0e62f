"""When ranks of one host came to their collectives, and until when others had held them before. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low

from ...runtime.groups.ledger import Entry, RankLedger
from ..sources.source import name_of
from .ledger import ROOTED, History, place_text


@dataclass(frozen=True, slots=True)
class Meeting:
    """One collective, as the ranks of a host came to it."""

    line: str
    """What was called, and where: `all_reduce at cell 5, line 3`."""
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


def companies_of(told: Iterable[History], ledgers: Mapping[int, RankLedger], ranks: set[int]) -> list[Company]:
    """The groups of these ranks, which are on one host: of each those members that can be compared, two at least."""
    here = [(history, sorted(ranks & history.by_rank.keys())) for history in told]
    companies = [Company.of(history, members, ledgers) for history, members in here if members]
    for rank in ranks:
        _follow(rank, companies)
    across = [set(company.ranks) for company in companies if not company.is_whole]
    return [
        company
        for company in companies
        # Where others on other hosts may have held some of them, and not all, it is not known for how long.
        if len(company.ranks) > 1
        and all(some.isdisjoint(company.ranks) or some.issuperset(company.ranks) for some in across)
    ]


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
class Company:
    """The ranks of one group on one host, and what they issued in it."""

    history: History
    ranks: Sequence[int]
    is_whole: bool
    """Are these all ranks of the group?"""
    collectives: Mapping[int, _Collective]
    """By number."""

    @staticmethod
    def of(history: History, ranks: Sequence[int], ledgers: Mapping[int, RankLedger]) -> Company:
        collectives: dict[int, _Collective] = {}
        for rank in ranks:
            read_at = ledgers[rank].read_at
            for number, entry in history.by_rank[rank].items():
                collectives.setdefault(number, _Collective()).steps[rank] = _Step(read_at - entry.seconds, entry)
        for collective in collectives.values():
            collective.settle()
        return Company(history, ranks, len(ranks) == len(history.group.ranks or ()), collectives)

    def meetings(self) -> list[Meeting]:
        """The collectives that all have issued, the oldest first, none from before the last cell."""
        met: list[Meeting] = []
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
        return met[::-1]


def _meeting(collective: _Collective, first: int) -> Meeting:
    steps, start = collective.steps, collective.start
    return Meeting(
        f"{steps[first].entry.call} at {place_text(steps[first].entry)}",
        {rank: step.time for rank, step in steps.items()},
        {rank: max(0.0, min(step.time - max(start, step.freed), step.inherited)) for rank, step in steps.items()},
        median_low([step.went_on for step in steps.values() if step.time <= start]),
    )


def _follow(rank: int, companies: Sequence[Company]) -> None:
    """Note on all steps of a rank what came before and after, and until when others have held it."""
    taken = [
        (collective.steps[rank], collective, company)
        for company in companies
        for collective in company.collectives.values()
        if rank in collective.steps
    ]
    freed, to_come = -math.inf, list[float]()
    before: tuple[_Step, _Collective, Company] | None = None
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
