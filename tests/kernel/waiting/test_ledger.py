"""Ledgers of ranks compared: in step they give no finding, and who is out of step is named, and nobody else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.waiting.collectives import MeshLedger, reasons
from meshbook.kernel.waiting.ledger import compare, parted_by_cells
from meshbook.runtime.groups.ledger import Entry, Exchange, Group, RankLedger

OPS: tuple[str, ...] = ("all_reduce", "barrier", "broadcast", "all_gather")


def default(num_ranks: int) -> Group:
    return Group("0", "gloo", "default_pg", tuple(range(num_ranks)))


def entry(number: int, op: str = "all_reduce", line: int = 2, **changes: object) -> Entry:
    sizes = () if op == "barrier" else ((4,),)
    plain = Entry(0, number, op, op, sizes, ("Float",) * len(sizes), False, 9.0, "<ipython-input-5-00000007>", line)
    return msgspec.structs.replace(plain, **changes)


def texts(num_ranks: int, by_rank: Sequence[Sequence[Entry]]) -> list[str]:
    group = default(num_ranks)
    return [found.text for found in compare({r: RankLedger((group,), tuple(e)) for r, e in enumerate(by_rank)})]


@dataclass
class Step:
    """Ranks in step: the same operations on all, the last of them perhaps still open."""

    ops: list[str]
    num_ranks: int
    is_open: bool
    odd: int
    place: int

    def entries(self) -> list[Entry]:
        last = len(self.ops)
        return [entry(n, op, is_open=self.is_open and n == last, seconds=4.0) for n, op in enumerate(self.ops, 1)]

    def ledgers(self) -> dict[int, RankLedger]:
        group = default(self.num_ranks)
        return {rank: RankLedger((group,), tuple(self.entries())) for rank in range(self.num_ranks)}

    def with_odd(self, entries: Sequence[Entry]) -> dict[int, RankLedger]:
        groups = (default(self.num_ranks),)
        return self.ledgers() | {self.odd: RankLedger(groups if entries else (), tuple(entries))}


@st.composite
def steps(draw: st.DrawFn) -> Step:
    ops = draw(st.lists(st.sampled_from(OPS), min_size=1, max_size=8))
    num_ranks = draw(st.integers(3, 6))
    is_open, odd = draw(st.booleans()) and ops[-1] != "broadcast", draw(st.integers(0, num_ranks - 1))
    return Step(ops, num_ranks, is_open, odd, draw(st.integers(0, len(ops) - 1)))


@given(steps())
def test_ranks_in_step_give_no_finding(step: Step) -> None:
    assert compare(step.ledgers()) == []


@given(steps(), st.sampled_from(["reduce", "all_to_all"]))
def test_one_rank_that_called_another_operation_is_named(step: Step, other: str) -> None:
    entries = step.entries()
    entries[step.place] = entry(step.place + 1, other, 9, is_open=entries[step.place].is_open)
    [finding] = compare(step.with_odd(entries))
    assert finding.odd == (step.odd,)
    assert finding.text.startswith(f"rank {step.odd} called {other} at cell 5, line 9; ")
    assert finding.text.endswith(
        f" called {step.ops[step.place]} at cell 5, line 2 (#{step.place + 1} of the default group)"
    )


@given(steps())
def test_one_rank_that_is_behind_is_named(step: Step) -> None:
    step.is_open = True
    finding = compare(step.with_odd(step.entries()[:-1]))[0]
    assert finding.odd == (step.odd,)
    assert finding.waiting == tuple(rank for rank in range(step.num_ranks) if rank != step.odd)
    few = f"only {len(step.ops) - 1}" if len(step.ops) > 1 else "none"
    assert finding.text.endswith(f"; rank {step.odd} has issued {few}")


@given(steps())
def test_one_rank_that_left_one_out_is_named_at_the_latest_where_the_others_wait(step: Step) -> None:
    step.is_open = True
    left = [op for place, op in enumerate(step.ops) if place != step.place]
    findings = compare(step.with_odd([entry(n, op, is_open=n == len(step.ops)) for n, op in enumerate(left, 1)]))
    assert findings and {finding.odd for finding in findings} == {(step.odd,)}


@given(steps())
def test_a_rank_that_tells_nothing_is_not_accused_of_anything_but_that(step: Step) -> None:
    told = step.ledgers()
    del told[step.odd]
    said = [finding.text for finding in compare(told)]
    assert all(text.endswith(f"; nothing is known of rank {step.odd}") for text in said)
    assert len(said) == step.is_open


def test_the_sentence_of_a_missing_rank() -> None:
    waiting = [*(entry(n) for n in range(1, 41)), entry(41, sizes=((1024,),), is_open=True)]
    assert texts(4, [waiting, waiting, waiting, waiting[:-1]]) == [
        "ranks 0-2 wait in all_reduce #41 (1024,) at cell 5, line 2; rank 3 has issued only 40"
    ]


def test_ranks_that_wait_at_different_lines() -> None:
    at = [[entry(1, line=line, is_open=True)] for line in (2, 2, 6)]
    assert texts(4, [*at, []]) == [
        "ranks 0-2 wait in all_reduce #1 (4,) at cell 5, line 2 (ranks 0-1) and cell 5, line 6 (rank 2); "
        "rank 3 has issued none"
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sizes": ((8,),)}, ("all_reduce (8,)", "all_reduce (4,)")),
        ({"dtypes": ("Long",)}, ("all_reduce (4,) int64", "all_reduce (4,) float32")),
        ({"call": "reduce_scatter"}, None),
        ({"sizes": ((2, 2),)}, None),
        (
            {"op": "all_gather", "call": "all_reduce"},
            ("recorded as all_gather (4,) float32", "recorded as all_reduce (4,) float32"),
        ),
    ],
    ids=["size", "type", "another call of the same operation", "shape", "the same call"],
)
def test_what_must_be_equal(changes: dict[str, object], said: tuple[str, str] | None) -> None:
    found = texts(3, [[msgspec.structs.replace(entry(1), **changes)], [entry(1)], [entry(1)]])
    if said is None:
        assert found == []
    else:
        assert f"{said[0]}" in found[0].partition(";")[0] and said[1] in found[0].partition(";")[2]


def test_uneven_gathers_are_legal_until_somebody_is_stuck() -> None:
    def gather(size: int, is_open: bool) -> list[Entry]:
        return [entry(1, "all_gather", sizes=((size,),), is_open=is_open)]

    assert texts(3, [gather(1, False), gather(2, False), gather(2, False)]) == []
    assert texts(3, [gather(1, True), gather(2, True), gather(2, True)])


def test_what_an_interrupted_cell_has_left_open_is_not_told_as_waiting() -> None:
    told = {0: RankLedger((default(2),), (entry(1, is_open=True),)), 1: RankLedger()}
    [finding] = compare(told, idle=[0, 1])
    assert finding.text == "rank 0 left all_reduce #1 (4,) open at cell 5, line 2; rank 1 has issued none"


@pytest.mark.parametrize(
    ("op", "why"),
    [("gather", "dst"), ("reduce", "dst"), ("broadcast", "src"), ("scatter", "src"), ("all_reduce", "")],
)
def test_what_all_have_issued_and_does_not_end(op: str, why: str) -> None:
    """No record has the rank that it is about; what has none is suspected later, as it may just be slow."""
    left = [[entry(1, op, is_open=rank < 2, seconds=4.0)] for rank in range(3)]
    said = f"; all have issued it, perhaps each with another {why!r}" if why else "; all have issued it"
    assert texts(3, left) == ([f"ranks 0-1 wait in {op} #1 (4,) at cell 5, line 2{said}"] if why else [])
    told = {rank: RankLedger((default(3),), tuple(entries)) for rank, entries in enumerate(left)}
    [finding] = compare(told, idle=[0, 1, 2])
    assert finding.text == f"ranks 0-1 left {op} #1 (4,) open at cell 5, line 2{said}"
    assert (finding.odd, finding.waiting, finding.seconds) == ((), (0, 1), pytest.approx(4.0))
    [late] = texts(3, [[entry(1, op, is_open=rank < 2)] for rank in range(3)])
    assert late == f"ranks 0-1 wait in {op} #1 (4,) at cell 5, line 2{said}"


def test_gradients_that_stand_in_a_queue_are_not_late() -> None:
    """At 10 million numbers a second the last of three buckets has ended 12 s after all have issued the first."""

    def told(seconds: float) -> list[str]:
        buckets = [entry(n, sizes=((40_000_000,),), is_open=n == 3, seconds=seconds) for n in (1, 2, 3)]
        return texts(2, [buckets, buckets])

    assert not told(16.9)
    assert told(17.1) == ["ranks 0-1 wait in all_reduce #3 (40000000,) at cell 5, line 2; all have issued it"]


def test_who_came_to_it_last_has_begun_it() -> None:
    late = [[entry(1, seconds=99.0, is_open=True)], [entry(1, seconds=4.9, is_open=True)]]
    assert not texts(2, late)


@pytest.mark.parametrize("changes", [{"sizes": ((100_000_000,),)}, {"seconds": 0.01}], ids=["large", "just issued"])
def test_what_all_have_issued_may_be_under_way(changes: dict[str, Any]) -> None:
    left = [entry(1, "gather", is_open=True), entry(1, "gather", is_open=True), entry(1, "gather", **changes)]
    told = {rank: RankLedger((default(3),), (each,)) for rank, each in enumerate(left)}
    assert not compare(told) and not compare(told, idle=[0, 1, 2])


def test_what_all_have_issued_on_a_gpu_waits_for_what_stands_before_it() -> None:
    group = msgspec.structs.replace(default(2), backend="nccl")
    told = {rank: RankLedger((group,), (entry(1, "broadcast", is_open=True),)) for rank in range(2)}
    assert not compare(told) and not compare(told, idle=[0, 1])


def test_ranks_that_lost_one_that_was_aborted_tell_who_called_something_else() -> None:
    """Of what was gathered, no two sizes are suspect before somebody is stuck in it; these were."""

    def told(*entries: Entry) -> RankLedger:
        return RankLedger((default(4),), entries)

    first = entry(1, "all_gather")
    odd = told(first, entry(2, "all_gather", 4, sizes=((8,),)))
    ledgers = {1: told(first, entry(2, "all_gather", 3)), 2: odd, 3: told(first, entry(2, "all_gather", 3))}
    assert not compare(ledgers, dead=[0])
    assert MeshLedger(ledgers, (1, 2, 3)).unlike() == [
        "rank 2 called all_gather (8,) at cell 5, line 4; ranks 1,3 called all_gather (4,) at cell 5, line 3 "
        "(#2 of the default group)"
    ]
    assert not MeshLedger(ledgers, (1, 3)).unlike() and not MeshLedger(ledgers | {2: told()}, (1, 2)).unlike()
    assert not MeshLedger({1: ledgers[1], 2: told(entry(1, "barrier"))}, (1, 2)).unlike()  # it had not come so far


def test_what_was_issued_just_now_is_no_reason_to_accuse() -> None:
    assert texts(2, [[entry(1, is_open=True, seconds=0.01)], []]) == []


def test_who_sent_and_went_on_does_not_wait() -> None:
    assert texts(3, [[entry(1, "broadcast"), entry(2, "barrier", is_open=True)], [entry(1, "broadcast")], []]) == [
        "rank 0 waits in barrier #2 at cell 5, line 2; rank 2 has issued none; rank 1 has issued only 1"
    ]


def test_an_old_difference_stands_before_what_followed_from_it() -> None:
    first = [entry(1, "broadcast"), entry(2, is_open=True)]
    assert texts(3, [first, first, [entry(1, "reduce")]]) == [
        "rank 2 called reduce at cell 5, line 2; ranks 0-1 called broadcast at cell 5, line 2 "
        "(#1 of the default group)",
        "ranks 0-1 wait in all_reduce #2 (4,) at cell 5, line 2; rank 2 has issued only 1",
    ]


def test_groups_are_compared_by_name_and_members() -> None:
    """The axis groups of a device mesh are of one size, and may even have one name."""
    left, right = Group("a", "gloo", "", (0, 1)), Group("a", "gloo", "", (2, 3))
    told = {rank: RankLedger((left if rank < 2 else right,), (entry(1, OPS[rank // 2]),)) for rank in range(4)}
    assert compare(told) == []
    told[3] = RankLedger()
    told[2] = RankLedger((right,), (entry(1, is_open=True),))
    assert [finding.text for finding in compare(told)] == [
        "rank 2 waits in all_reduce #1 (4,) of the group of ranks 2-3 at cell 5, line 2; rank 3 has issued none"
    ]


def test_entries_that_were_dropped_are_not_told_as_never_issued() -> None:
    group = default(2)
    told = {0: RankLedger((group,), (entry(900, is_open=True),), is_whole=False), 1: RankLedger(is_whole=False)}
    assert [f.text for f in compare(told)] == [
        "rank 0 waits in all_reduce #900 (4,) at cell 5, line 2; rank 1 has not issued it"
    ]


def test_a_torch_without_records_leaves_a_plain_count() -> None:
    counted = Group("0", "", "default_pg", (0, 1), num_issued=41)
    told = {0: RankLedger((default(2),), (entry(1, is_open=True),)), 1: RankLedger((counted,), is_recorded=False)}
    ledger = MeshLedger(told, (0, 1))
    assert [found.text for found in ledger.findings] == [
        "rank 0 waits in all_reduce #1 (4,) at cell 5, line 2; nothing is known of rank 1"
    ]
    assert "rank 1: its torch keeps no record; operations issued, sends included: 41 in the default group" in repr(
        ledger
    )


def test_the_listing_folds_what_is_equal() -> None:
    group = default(3)
    told = {rank: RankLedger((group,), tuple(entry(n) for n in range(1, 12))) for rank in range(2)}
    told[2] = RankLedger((group,), (*told[0].entries[:-1], entry(11, "barrier", 3, is_open=True, file="")))
    ledger = MeshLedger(told, (0, 1, 2, 3), last=2)
    assert (
        repr(ledger)
        == """\
≠ rank 2 called barrier at an unknown line; ranks 0-1 called all_reduce at cell 5, line 2 (#11 of the default group)
group          #    ranks  collective               at               state
default group  #10  0-2    all_reduce (4,) float32  cell 5, line 2   done
default group  #11  0-1    all_reduce (4,) float32  cell 5, line 2   done
default group  #11  2      barrier                  an unknown line  open for 9.00 s
no answer from rank 3"""
    )
    assert "<strong>rank 2 called barrier" in ledger._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert msgspec.json.decode(msgspec.json.encode(ledger.data()))["findings"] == [ledger.findings[0].text]
    assert reasons(ledger.findings, (2, 9), 10) and not reasons(ledger.findings, (0, 1), 10)
    assert not reasons(ledger.findings, (2, 9), 8)  # open since before the cell
    assert MeshLedger({}, ()).lines() == [] and repr(MeshLedger({}, ())) == "no collective was issued yet"


def test_only_the_ranks_that_were_asked_for_are_listed() -> None:
    group = default(3)
    told = {rank: RankLedger((group,), (entry(1, line=rank),)) for rank in range(3)}
    assert [line.ranks for line in MeshLedger(told, (1,)).lines()] == [(1,)]


def test_a_pipeline_that_waits_is_one_sentence_that_ends_with_who_does_not() -> None:
    def waits(*peers: int, call: str = "recv", seconds: float = 5.0) -> RankLedger:
        return RankLedger(exchanges=(Exchange(call, peers, seconds, "train.py", 7),))

    ledgers = {0: RankLedger(), 1: waits(0), 2: waits(1), 3: waits(2)}
    said = [found.text for found in compare(ledgers, idle=[0])]
    assert said == ["ranks 1-3 wait in recv from ranks 0-2 at train.py, line 7; rank 0 is idle"]
    assert compare(ledgers)[0].odd == (0,)
    said = [found.text for found in compare({1: waits(0, call="send"), 2: waits()}, dead=[0])]
    assert said == [
        "rank 1 waits in send to rank 0 at train.py, line 7; rank 0 is dead",
        "rank 2 waits in recv at train.py, line 7",
    ]
    assert not compare({1: waits(0, seconds=0.01)})


def test_who_is_missing_in_a_barrier_that_is_not_recorded_is_named() -> None:
    def waits(*peers: int, seconds: float = 5.0) -> RankLedger:
        return RankLedger(exchanges=(Exchange("monitored_barrier", peers, seconds, "train.py", 7),))

    (found,) = compare({0: waits(1, 2), 1: waits(0, 2), 2: RankLedger()}, idle=[2])
    assert found.text == "ranks 0-1 wait in monitored_barrier for rank 2 at train.py, line 7; rank 2 is idle"
    assert (found.odd, found.waiting) == ((2,), (0, 1))
    (found,) = compare({0: waits(1, 2), 1: waits(0, 2, seconds=0.01), 2: RankLedger()})
    assert (found.odd, found.waiting) == ((2,), (0,)), "one has only just come"


def test_ranks_that_all_send_first_wait_for_one_another() -> None:
    def waits(call: str, peer: int, line: int) -> RankLedger:
        return RankLedger(exchanges=(Exchange(call, (peer,), 5.0, "train.py", line),))

    assert [found.text for found in compare({rank: waits("send", (rank + 1) % 3, 7) for rank in range(3)})] == [
        "ranks 0-2 wait in send to ranks 0-2 at train.py, line 7; ranks 0-2 wait for one another"
    ]
    said = [found.text for found in compare({0: waits("recv", 1, 7), 1: waits("recv", 0, 9)})]
    assert said == [
        "rank 0 waits in recv from rank 1 at train.py, line 7; ranks 0-1 wait for one another",
        "rank 1 waits in recv from rank 0 at train.py, line 9; ranks 0-1 wait for one another",
    ]
    said = [found.text for found in compare({0: waits("send", 1, 7), 1: waits("recv", 0, 9)})]
    assert said == [
        "rank 0 waits in send to rank 1 at train.py, line 7; "
        "who is at the other end waits too, perhaps each with another 'tag' or group",
        "rank 1 waits in recv from rank 0 at train.py, line 9; "
        "who is at the other end waits too, perhaps each with another 'tag' or group",
    ]


def test_who_has_no_such_group_is_told() -> None:
    """torch counts groups on each rank: made in another order, or not by all, they have other names."""
    first, crossed, other = (
        Group(name, "gloo", "", ranks) for name, ranks in (("1", (0, 1)), ("2", (0, 1)), ("1", (1, 2)))
    )
    told = {0: RankLedger((first,), (entry(1, is_open=True),)), 1: RankLedger((default(3), other, crossed))}
    assert [found.text for found in compare(told)] == [
        "rank 0 waits in all_reduce #1 (4,) of the group of ranks 0-1 at cell 5, line 2; "
        "rank 1 has no such group: all ranks make all groups, in one order"
    ]
    told[1] = RankLedger((default(3), first))
    assert [found.text for found in compare(told)] == [
        "rank 0 waits in all_reduce #1 (4,) of the group of ranks 0-1 at cell 5, line 2; rank 1 has issued none"
    ]


def test_a_rank_with_the_groups_of_before_has_issued_none_in_the_new_ones() -> None:
    """The names of groups that were renewed are the same."""
    waits = RankLedger((default(3),), (entry(1, is_open=True),), generation=2)
    former = RankLedger((default(3),), (entry(1, line=7), entry(2, "barrier", line=8)), generation=1)
    [finding] = compare({0: waits, 1: former, 2: waits})
    assert finding.text == "ranks 0,2 wait in all_reduce #1 (4,) at cell 5, line 2; rank 1 has issued none"
    assert finding.odd == (1,)
    new = RankLedger(generation=3)  # it came new, and has no groups yet
    assert compare({0: waits, 1: new, 2: waits})[0].text == finding.text


@pytest.mark.parametrize(
    ("last", "counts", "resting", "has_parted"),
    [
        ({}, (3, 3), (0, 1), False),
        ({}, (3, 2), (0, 1), True),
        ({"is_open": True}, (3, 3), (0, 1), True),
        ({"is_open": True, "seconds": 0.01}, (3, 3), (0, 1), False),
        ({"is_open": True}, (3, 3), (0,), False),
        ({}, (3, 2), (0,), False),
        ({"on_main": False}, (3, 2), (0, 1), False),
        ({"on_main": False, "is_open": True}, (3, 3), (0, 1), False),
    ],
)
def test_what_cells_have_left_on_ranks_without_one(
    last: dict[str, Any], counts: tuple[int, int], resting: tuple[int, ...], has_parted: bool
) -> None:
    entries = entry(1, on_main=False), entry(2, on_main=True), entry(3, **{"on_main": True, **last})
    told = {
        rank: RankLedger((msgspec.structs.replace(default(2), num_issued=count),), entries[:count])
        for rank, count in enumerate(counts)
    }
    assert parted_by_cells(told, resting) is has_parted
    assert not parted_by_cells(
        {rank: msgspec.structs.replace(own, is_recorded=False) for rank, own in told.items()}, resting
    )
