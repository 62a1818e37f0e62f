"""Who keeps the others waiting, of made-up ledgers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.waiting.latecomers import latecomers
from meshbook.runtime.groups.ledger import Entry, Group, RankLedger

READ_AT = 1e9


FILE, OTHER = "<ipython-input-2-00000001>", "<ipython-input-3-00000001>"


def told(times: Sequence[float], behind: float = 0.0, lines: Sequence[int] = (1,), file: str = FILE) -> RankLedger:
    """A rank of the default group of four that issued barriers at these times, by a clock that is `behind`.

    At each of these lines of a cell in turn.
    """
    group = Group("0", "gloo", "default_pg", (0, 1, 2, 3))
    placed = [(time, lines[n % len(lines)]) for n, time in enumerate(times)]
    entries = (
        Entry(0, n, "barrier", "barrier", (), (), False, 100 - time, file, line)
        for n, (time, line) in enumerate(placed, 1)
    )
    return RankLedger((group,), tuple(entries), read_at=READ_AT - behind)


def of_ranks(times: Mapping[int, Sequence[float]], lines: Sequence[int] = (1,)) -> dict[int, RankLedger]:
    return {rank: told(each, lines=lines) for rank, each in times.items()}


def every(period: float, late: Sequence[float] = (0.0,), num: int = 9) -> list[float]:
    return [n * period + late[n % len(late)] for n in range(num)]


def test_who_is_late_by_turns_is_not_slow() -> None:
    turns = {rank: told(every(1.0, [0.3 * (rank == n) for n in range(4)])) for rank in range(4)}
    assert latecomers(turns, {}) == []


def test_several_slow_ranks_are_told_together() -> None:
    (late,) = latecomers({rank: told(every(1.0, [0.2 if rank > 1 else 0.0])) for rank in range(4)}, {})
    where = "barrier at cell 2, line 1"
    assert late.text == f"ranks 2-3 come 200 ms late to {where}: 22 % of 8.2 s were waiting for them"


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


def test_who_is_late_at_one_line_of_several_is_found_there() -> None:
    """A step that ends in a barrier: the rank that is slow in its gradients is in time there."""
    steps = {rank: [time for n in range(9) for time in (n + 0.5 * (rank == 2), n + 0.6)] for rank in range(4)}
    (late,) = latecomers(of_ranks(steps, lines=[8, 9]), {})
    assert late.text == "rank 2 comes 500 ms late to barrier at cell 2, line 8: 52 % of 8.6 s were waiting for it"


def test_ranks_that_are_late_at_different_lines_are_told_each() -> None:
    steps = {
        rank: [time for n in range(9) for time in (n + 0.2 * (rank == 2), n + 0.5 + 0.3 * (rank == 0))]
        for rank in range(4)
    }
    found = latecomers(of_ranks(steps, lines=[8, 9]), {})
    assert [(late.ranks, late.what) for late in found] == [
        ((2,), "barrier at cell 2, line 8"),
        ((0,), "barrier at cell 2, line 9"),
    ]


def test_who_is_late_everywhere_is_late_to_the_group() -> None:
    steps = {rank: [time + 0.2 * (rank == 3) for n in range(9) for time in (n, n + 0.5)] for rank in range(4)}
    (late,) = latecomers(of_ranks(steps, lines=[8, 9]), {})
    assert late.what == "collectives of the default group"


def as_broadcasts(ledgers: Mapping[int, RankLedger], line: int) -> dict[int, RankLedger]:
    """What is issued at this line is one."""
    return {
        rank: msgspec.structs.replace(
            ledger,
            entries=tuple(
                msgspec.structs.replace(entry, op="broadcast", call="broadcast") if entry.line == line else entry
                for entry in ledger.entries
            ),
        )
        for rank, ledger in ledgers.items()
    }


@pytest.mark.parametrize("hosts", [{}, {0: "a", 1: "a", 2: "b", 3: "b"}], ids=["one host", "two hosts"])
def test_whom_a_late_rank_holds_in_a_broadcast_is_not_late_to_what_comes_next(hosts: dict[int, str]) -> None:
    """From rank 0, which goes on to the barrier at once, as does rank 2; rank 1 is held until rank 3 has come."""
    late = 0.5
    next_at = {0: 0.01, 1: late + 0.01, 2: 0.01, 3: late + 0.01}
    steps = {
        rank: [time for n in range(9) for time in (n + late * (rank == 3), n + next_at[rank])] for rank in range(4)
    }
    ledgers = as_broadcasts(of_ranks(steps, lines=[8, 9]), 8)
    [found] = latecomers(ledgers, hosts)
    assert found.ranks == (3,) and found.what == "collectives of the default group"
    assert found.waited == pytest.approx(9 * 0.51, abs=0.02)


def two_by_two(steps: Mapping[int, Sequence[tuple[str, float]]]) -> dict[int, RankLedger]:
    """Ranks of a square: `tp` is the group of those of a row (0-1, 2-3), `dp` of those of a column."""
    ledgers: dict[int, RankLedger] = {}
    for rank, issued in steps.items():
        row, column = rank // 2 * 2, rank % 2
        groups = {"dp": (column, column + 2), "tp": (row, row + 1)}
        counts, entries = dict.fromkeys(groups, 0), list[Entry]()
        for name, time in issued:
            counts[name] += 1
            line = 7 if name == "dp" else 8
            kind = list(groups).index(name)
            entries.append(Entry(kind, counts[name], "barrier", name, (), (), False, 100 - time, FILE, line))
        known = tuple(Group(f"{name}{members}", "gloo", name, members) for name, members in groups.items())
        ledgers[rank] = RankLedger(known, tuple(entries), read_at=READ_AT)
    return ledgers


SQUARE = {
    rank: [
        step
        for n in range(9)
        # Rank 3 loads for half a second; rank 1 is held by it in their column, and keeps rank 0 waiting in their row.
        for step in (("dp", n + 0.5 * (rank == 3)), ("tp", n + 0.001 + 0.5 * (rank % 2)))
    ]
    for rank in range(4)
}


def test_whom_a_late_rank_holds_in_one_group_is_not_late_in_another() -> None:
    found = latecomers(two_by_two(SQUARE), {})
    assert {late.ranks for late in found} == {(3,)}
    assert any(late.what == "dp at cell 2, line 7 (of the group 'dp' of ranks 1,3)" for late in found)


def test_who_goes_on_in_another_group_has_waited_until_then() -> None:
    """What is begun in the column and waited for later. Rank 1 is late in its row by itself."""
    steps = {0: (0.0, 0.01), 1: (0.0, 0.1), 2: (0.0, 0.52), 3: (0.5, 0.52)}
    square = {
        rank: [step for n in range(9) for step in (("dp", n + dp), ("tp", n + tp))] for rank, (dp, tp) in steps.items()
    }
    found = {late.ranks: late for late in latecomers(two_by_two(square), {})}
    assert found.keys() == {(3,), (1,)}
    assert found[3,].waited == pytest.approx(9 * 0.1) and found[3,].delay == pytest.approx(0.5)
    assert found[1,].delay == pytest.approx(0.09)


def test_who_computes_after_a_broadcast_is_late_by_itself() -> None:
    steps = {rank: [time for n in range(9) for time in (n, n + 0.01 + 0.4 * (rank == 2))] for rank in range(4)}
    [late] = latecomers(as_broadcasts(of_ranks(steps, lines=[8, 9]), 8), {})
    assert late.ranks == (2,) and late.what == "barrier at cell 2, line 9"


def test_ranks_whom_other_hosts_may_hold_one_by_one_are_not_compared() -> None:
    """Rows lie on hosts, columns across: who keeps rank 1 is not seen from its own host."""
    assert latecomers(two_by_two(SQUARE), {0: "a", 1: "a", 2: "b", 3: "b"}) == []


def test_many_lines_are_counted() -> None:
    steps = {
        rank: [n + 0.1 * i + 0.05 * (rank == 1 and i < 3) for n in range(9) for i in range(4)] for rank in range(4)
    }
    (late,) = latecomers(of_ranks(steps, lines=[3, 4, 5, 6]), {})
    assert late.what == "barrier at cell 2, line 3 and 2 other lines"


def test_a_rank_that_is_late_to_every_tenth_by_much_is_found_and_by_how_much() -> None:
    """It saves a checkpoint, say."""
    together = [n + 2.0 * ((n + 9) // 10) for n in range(60)]  # all go on when it comes
    saves = {rank: [time + 0.0015 * (rank == n % 3 + 1) for n, time in enumerate(together)] for rank in range(1, 4)}
    saves[0] = [time + 2.0 * (n % 10 == 0) for n, time in enumerate(together)]
    (late,) = latecomers(of_ranks(saves), {})
    assert late.ranks == (0,) and late.delay == pytest.approx(2.0, rel=0.01)
    assert late.waited == pytest.approx(6 * 2.0, rel=0.01)


def test_one_long_stop_is_no_habit() -> None:
    times = {rank: every(1.0, [0.002 * (rank == n) for n in range(4)], num=20) for rank in range(4)}
    times[3][7] += 0.9
    assert latecomers(of_ranks(times), {}) == []


def test_who_goes_on_meanwhile_has_not_waited() -> None:
    """Collectives that are begun and waited for later, while much is computed."""
    times = {rank: every(1.0, [0.9 * (rank == 3)]) for rank in range(4)}
    (late,) = latecomers(of_ranks(times), {})
    assert late.waited == pytest.approx(9 * 0.9)
    both = {rank: [t for n in times[rank] for t in (n, n + 0.001)] for rank in times}
    for rank in range(3):
        both[rank] = [t for n in range(9) for t in (n, n + 0.001)]
    (late,) = latecomers(of_ranks(both, lines=[8, 9]), {})
    assert late.waited == pytest.approx(9 * 0.901)


def test_what_modules_issue_counts_with_the_cell_that_calls_them() -> None:
    ledgers: dict[int, RankLedger] = {}
    for rank in range(4):
        of_cell = told(every(1.0), lines=[5]).entries
        of_module = [
            msgspec.structs.replace(entry, file="step.py", line=30, seconds=entry.seconds - 0.4 - 0.3 * (rank == 1))
            for entry in of_cell
        ]
        entries = [entry for pair in zip(of_cell, of_module, strict=True) for entry in pair]
        numbered = [msgspec.structs.replace(entry, number=n) for n, entry in enumerate(entries, 1)]
        ledgers[rank] = msgspec.structs.replace(told([]), entries=tuple(numbered))
    (late,) = latecomers(ledgers, {})
    assert late.what == "barrier at step.py, line 30"


def test_only_what_the_last_cell_has_issued_counts() -> None:
    even, slow = (told(every(1.0, [late])).entries for late in (0.0, 0.5))
    ledgers = {rank: msgspec.structs.replace(told([]), entries=slow if rank == 3 else even) for rank in range(4)}
    assert [late.ranks for late in latecomers(ledgers, {})] == [(3,)]
    now = [
        msgspec.structs.replace(each, number=9 + each.number, seconds=each.seconds - 20, file=OTHER) for each in even
    ]
    for rank, ledger in ledgers.items():
        ledgers[rank] = msgspec.structs.replace(ledger, entries=(*ledger.entries, *now))
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


ISSUED = st.tuples(st.sampled_from(["dp", "tp"]), st.sampled_from([0.0, 0.002, 0.5, 1.0, -0.5]))


@given(st.dictionaries(st.integers(0, 3), st.lists(ISSUED, max_size=24), max_size=4), st.booleans())
def test_whatever_is_issued_no_more_is_waited_than_there_was_time(
    issued: dict[int, list[tuple[str, float]]], is_on_two_hosts: bool
) -> None:
    """Clocks may be set back, ranks may be in the midst of it, or have told nothing."""
    hosts = {rank: "ab"[rank // 2] for rank in range(4)} if is_on_two_hosts else {}
    for late in latecomers(two_by_two(issued), hosts):
        assert 0 < late.waited <= late.seconds + 1e-9 and late.delay >= 0.001 and late.text
