"""Which ranks come late to collectives, so that the others wait: by the times at which each issued them. Pure.

A slow rank shows nowhere else: every rank of a step takes as long as the slowest, which is the only one that does not
wait. Each line of the user's that issues collectives is looked at by itself, as a rank that is late to the first of a
step is in time for the others. Times are compared on one host only, as the clocks of two differ by more than what is
looked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...runtime.groups.ledger import RankLedger
from ...runtime.ranges import named
from .attendance import Company, Meeting, companies_of
from .ledger import History, group_text, histories

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


def latecomers(ledgers: Mapping[int, RankLedger], hosts: Mapping[int, str]) -> list[Late]:
    """Who keeps others waiting, for each host and group; ranks that are not in `hosts` are on one of their own.

    Example:
        >>> from meshbook.runtime.groups.ledger import Entry, Group
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
    companies = [company for ranks in on_host.values() for company in companies_of(told, ledgers, ranks)]
    return [late for company in companies for late in _late(company)]


def _late(company: Company) -> Iterator[Late]:
    meetings = company.meetings()
    by_line: dict[str, list[Meeting]] = {}
    for meeting in meetings:
        by_line.setdefault(meeting.line, []).append(meeting)
    lines_of: dict[tuple[int, ...], list[str]] = {}
    for line, there in by_line.items():
        if late := _mostly_late(there, company.ranks):
            lines_of.setdefault(late, []).append(line)
    for late, lines in lines_of.items():
        met = [meeting for meeting in meetings if meeting.line in lines]
        waited = _covered(meeting.waited(late) for meeting in met)
        seconds = max(max(each.times.values()) for each in meetings) - min(
            min(each.times.values()) for each in meetings
        )
        if waited > _LEAST_PART * seconds:
            delay = max(_weighed([meeting.delays[rank] for meeting in met]) for rank in late)
            is_all = all(line in lines for line, there in by_line.items() if len(there) >= _FEWEST)
            yield Late(_what(company.history, lines, is_all), late, delay, waited, seconds)


def _what(history: History, lines: Sequence[str], is_all: bool) -> str:
    of = group_text(history.group)
    if is_all and len(lines) > 1:
        return f"collectives of {of}"
    others = f" and {len(lines) - 1} other line{'s' * (len(lines) > 2)}" if len(lines) > 1 else ""
    return lines[0] + others + ("" if history.group.about == "default_pg" else f" (of {of})")


def _mostly_late(meetings: Sequence[Meeting], ranks: Sequence[int]) -> tuple[int, ...]:
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
