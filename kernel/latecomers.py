"""Which ranks come late to collectives, so that the others wait: by the times at which each issued them. Pure.

A slow rank shows nowhere else: every rank of a step takes as long as the slowest, which is the only one that does not
wait. Times are compared on one host only, as the clocks of two differ by more than what is looked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, median_low

from ..runtime.ranges import named
from ..runtime.ranks.ledger import RankLedger
from .ledger import History, group_text, histories

_FEWEST = 5
"""So many collectives make a habit."""

_MOST = 64
"""So many of the last ones are looked at, of those that the same cell or file has issued."""

_MOSTLY = 2 / 3
"""The part of them to which such a rank comes late. Half of them is what chance does to each of two ranks."""

_LEAST_SECONDS = 0.001
"""What counts as late."""

_LEAST_PART = 0.02
"""The part of the time that must be lost to be worth a word."""


@dataclass(frozen=True, slots=True)
class Late:
    """Ranks that were late to most of the last collectives of a group."""

    group: str
    ranks: tuple[int, ...]
    delay: float
    """Seconds by which they came later than at least half of the ranks there: the median, of the latest of them."""
    waited: float
    """Seconds that the others waited for them."""
    seconds: float
    """From the first of these collectives to the last."""

    @property
    def text(self) -> str:
        """Example: `rank 3 comes 12 ms late to collectives of the default group: 31 % of 2 s were waiting for it`."""
        comes, it = ("comes", "it") if len(self.ranks) == 1 else ("come", "them")
        waited = f"{100 * self.waited / self.seconds:.0f} % of {_text(self.seconds)} were waiting for {it}"
        return f"{named(self.ranks)} {comes} {_text(self.delay)} late to collectives of {self.group}: {waited}"


def latecomers(ledgers: Mapping[int, RankLedger], hosts: Mapping[int, str]) -> list[Late]:
    """Who keeps others waiting, a line for each group and host; ranks that are not in `hosts` are on one of their own.

    Example:
        >>> from meshbook.runtime.ranks.ledger import Entry, Group
        >>> group = Group("0", "gloo", "default_pg", (0, 1, 2))
        >>> def told(late):
        ...     issued = [Entry(0, n, "barrier", "barrier", (), (), False, 9 - n - late, "", 0) for n in range(1, 7)]
        ...     return RankLedger((group,), tuple(issued), read_at=100.0)
        >>> [late.text for late in latecomers({0: told(0.0), 1: told(0.0), 2: told(0.25)}, {})]
        ['rank 2 comes 250 ms late to collectives of the default group: 29 % of 5.25 s were waiting for it']
    """
    on_host: dict[str, list[int]] = {}
    for rank in ledgers:
        on_host.setdefault(hosts.get(rank, ""), []).append(rank)
    found = (
        _late(history, ledgers, sorted({*ranks} & {*history.by_rank}))
        for history in histories(ledgers)
        for ranks in on_host.values()
    )
    return [late for late in found if late is not None]


def _late(history: History, ledgers: Mapping[int, RankLedger], ranks: Sequence[int]) -> Late | None:
    issued = list(_times(history, ledgers, ranks))[-_MOST:]
    if len(ranks) < 2 or len(issued) < _FEWEST:
        return None
    starts = [median_low(times.values()) for times in issued]
    delays = {rank: [times[rank] - start for times, start in zip(issued, starts, strict=True)] for rank in ranks}
    late = tuple(rank for rank, each in delays.items() if _is_mostly_late(each))
    waits = [(start, max(times[rank] for rank in late)) for times, start in zip(issued, starts, strict=True) if late]
    waited, seconds = _covered(waits), max(issued[-1].values()) - starts[0]
    if waited <= _LEAST_PART * seconds:
        return None
    return Late(group_text(history.group), late, max(median(delays[rank]) for rank in late), waited, seconds)


def _is_mostly_late(delays: Sequence[float]) -> bool:
    return sum(delay >= _LEAST_SECONDS for delay in delays) >= _MOSTLY * len(delays)


def _times(history: History, ledgers: Mapping[int, RankLedger], ranks: Sequence[int]) -> Iterator[dict[int, float]]:
    """For each collective that all these ranks have issued where they issued the last one: when each did."""
    files = {rank: entries[history.last(rank)].file for rank, entries in history.by_rank.items() if entries}
    for number in history.numbers:
        here = history.at(number)
        if all(rank in here and here[rank].file == files[rank] for rank in ranks):
            yield {rank: ledgers[rank].read_at - here[rank].seconds for rank in ranks}


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
