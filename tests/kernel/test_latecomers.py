"""Who keeps the others waiting, of made-up ledgers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from meshbook.kernel.latecomers import latecomers
from meshbook.runtime.ranks.ledger import Entry, Group, RankLedger

READ_AT = 1e9


def told(times: Sequence[float], behind: float = 0.0) -> RankLedger:
    """A rank of the default group of four that issued barriers at these times, by a clock that is `behind`."""
    group = Group("0", "gloo", "default_pg", (0, 1, 2, 3))
    entries = (Entry(0, n, "barrier", "barrier", (), (), False, 100 - t, "", 0) for n, t in enumerate(times, 1))
    return RankLedger((group,), tuple(entries), read_at=READ_AT - behind)


def every(period: float, late: Sequence[float] = (0.0,), num: int = 9) -> list[float]:
    return [n * period + late[n % len(late)] for n in range(num)]


def test_who_is_late_by_turns_is_not_slow() -> None:
    turns = {rank: told(every(1.0, [0.3 * (rank == n) for n in range(4)])) for rank in range(4)}
    assert latecomers(turns, {}) == []


def test_several_slow_ranks_are_told_together() -> None:
    (late,) = latecomers({rank: told(every(1.0, [0.2 if rank > 1 else 0.0])) for rank in range(4)}, {})
    assert (
        late.text
        == "ranks 2-3 come 200 ms late to collectives of the default group: 22 % of 8.2 s were waiting for them"
    )


def test_what_is_little_beside_a_step_is_not_told() -> None:
    """2 ms are much between collectives 10 ms apart, and nothing between those of a long step."""
    (late,) = latecomers({rank: told(every(0.01, [0.002 * (rank == 3)])) for rank in range(4)}, {})
    assert late.ranks == (3,)
    assert latecomers({rank: told(every(1.0, [0.002 * (rank == 3)])) for rank in range(4)}, {}) == []
    assert latecomers({rank: told(every(0.001, [0.0002 * (rank == 3)])) for rank in range(4)}, {}) == []


def test_what_overlaps_is_waited_for_once() -> None:
    """The buckets of DDP: four collectives at once in each step."""
    times = {
        rank: [n + 0.001 * bucket + 0.5 * (rank == 3) for n in range(5) for bucket in range(4)] for rank in range(4)
    }
    (late,) = latecomers({rank: told(each) for rank, each in times.items()}, {})
    assert late.waited == pytest.approx(5 * 0.503) and late.seconds == pytest.approx(4.503)


def test_only_what_the_last_cell_has_issued_counts() -> None:
    even, slow = (told(every(1.0, [late])).entries for late in (0.0, 0.5))
    now = [msgspec.structs.replace(entry, number=9 + entry.number, file="cell 3") for entry in even]
    ledgers = {rank: told([]) for rank in range(4)}
    for rank, ledger in ledgers.items():
        ledgers[rank] = msgspec.structs.replace(ledger, entries=(*(slow if rank == 3 else even), *now))
    assert latecomers(ledgers, {}) == []


def test_few_collectives_tell_nothing() -> None:
    slow = {rank: every(1.0, [0.5 * (rank == 0)], num=5) for rank in range(4)}
    assert [late.ranks for late in latecomers({rank: told(times) for rank, times in slow.items()}, {})] == [(0,)]
    assert latecomers({rank: told(times[:4]) for rank, times in slow.items()}, {}) == []
    slow[3].pop()  # it has not come yet
    assert latecomers({rank: told(times) for rank, times in slow.items()}, {}) == []


def test_clocks_of_hosts_are_not_compared() -> None:
    """Rank 1 is slow among those of its host; the clock of the other host is a second behind."""
    times = {rank: every(1.0, [0.1 * (rank == 1)]) for rank in range(4)}
    ledgers = {rank: told(each, behind=rank // 2) for rank, each in times.items()}
    assert [late.ranks for late in latecomers(ledgers, {0: "a", 1: "a", 2: "b", 3: "b"})] == [(1,)]
