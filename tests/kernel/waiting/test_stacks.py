"""Stacks of many ranks, merged into a tree and told, without ranks."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.outcome import Frame
from meshbook.kernel.waiting.report import StackReport
from meshbook.kernel.waiting.stacks import Branch, RankStack, endings, folded_frames, frames_of, merge
from meshbook.runtime.ranks.stacks import Spot


def frame(name: str, line: int = 1, file: str = "cell 1", is_user: bool = True) -> Frame:
    return Frame(file, line, name, f"{name}()", is_user)


def at(
    rank: int, *names: str, state: str = "busy", waiting: str = "", seconds: float = 0.0, how: str = ""
) -> RankStack:
    return RankStack(rank, state, tuple(map(frame, names)), waiting, seconds, how)


def branches(tree: tuple[Branch, ...]) -> Iterator[Branch]:
    for branch in tree:
        yield branch
        yield from branches(branch.branches)


STACKS = st.lists(st.lists(st.sampled_from("abc"), max_size=5), max_size=12).map(
    lambda lists: [at(rank, *names) for rank, names in enumerate(lists)]
)


@given(STACKS)
def test_every_rank_with_frames_ends_in_exactly_one_place(stacks: list[RankStack]) -> None:
    ended = [stack.rank for branch in branches(merge(stacks)) for stack in branch.ends]
    assert sorted(ended) == [stack.rank for stack in stacks if stack.frames]


@given(STACKS)
def test_the_way_from_the_root_is_the_stack(stacks: list[RankStack]) -> None:
    ways: dict[int, tuple[Frame, ...]] = {}

    def walk(tree: tuple[Branch, ...], way: tuple[Frame, ...]) -> None:
        for branch in tree:
            ways.update({stack.rank: way + branch.frames for stack in branch.ends})
            walk(branch.branches, way + branch.frames)

    walk(merge(stacks), ())
    assert ways == {stack.rank: stack.frames for stack in stacks if stack.frames}


@given(STACKS)
def test_a_branch_has_the_ranks_of_its_ends_and_of_the_branches_on_it(stacks: list[RankStack]) -> None:
    for branch in branches(merge(stacks)):
        below = [rank for each in branch.branches for rank in each.ranks]
        assert sorted([*below, *(stack.rank for stack in branch.ends)]) == list(branch.ranks)
        assert [len(each.ranks) for each in branch.branches] == sorted(len(each.ranks) for each in branch.branches)
        assert len(branch.branches) != 1 or branch.ends, "a branch that does not branch is one with what is on it"


@given(STACKS, st.randoms())
def test_the_order_of_ranks_does_not_matter(stacks: list[RankStack], random: object) -> None:
    shuffled = list(stacks)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first, second = merge(stacks), merge(shuffled)
    assert [(b.ranks, b.frames) for b in branches(first)] == [(b.ranks, b.frames) for b in branches(second)]


def test_who_sees_less_from_outside_is_in_the_same_place() -> None:
    inside = RankStack(0, "busy", (Frame("a.py", 3, "Model.forward", "return x", True),))
    outside = RankStack(1, "busy", (Frame("a.py", 3, "forward", "", True),), how="signal")
    (branch,) = merge([outside, inside])
    assert branch.ranks == (0, 1)
    assert branch.frames == inside.frames


def test_a_stack_begins_with_its_cell() -> None:
    spots = [
        Spot("asyncio/base.py", 9, "run"),
        Spot("<ipython-input-5-0000000c>", 2, "<module>"),
        Spot("lib.py", 3, "f", "g()"),
    ]
    first, second = frames_of(spots, lambda file, line: f"  line {line} of {file}\n")
    assert (first.file, first.source, first.is_user) == ("cell 5", "line 2 of <ipython-input-5-0000000c>", True)
    assert (second.file, second.source) == ("lib.py", "g()")
    assert [each.file for each in frames_of(spots[2:], lambda file, line: "")] == ["lib.py"]


def test_what_differs_in_one_place_is_told_apart() -> None:
    ends = [at(0, "a", waiting="all_reduce", seconds=1.0), at(1, "a"), at(2, "a", waiting="all_reduce", seconds=3.0)]
    assert endings(ends) == [((0, 2), "waiting in all_reduce for 1.00-3.00 s"), ((1,), "")]
    assert endings([at(0, "a", how="signal")]) == [((0,), "seen by signal, for it did not answer in time")]


@given(st.lists(st.booleans(), max_size=12))
def test_folding_hides_only_frames_of_libraries(users: list[bool]) -> None:
    frames = tuple(frame("f", line, is_user=is_user) for line, is_user in enumerate(users))
    shown = folded_frames(frames)
    assert sum(each if isinstance(each, int) else 1 for each in shown) == len(frames)
    assert [each for each in shown if isinstance(each, Frame) and each.is_user] == [f for f in frames if f.is_user]
    assert shown[-1:] == list(frames[-1:])


def test_the_text_of_a_hang() -> None:
    stacks = [
        at(0, "train", "forward", waiting="all_reduce", seconds=12.0),
        at(1, "train", "forward", waiting="all_reduce", seconds=12.5),
        at(2, "train", "sleep"),
        at(3, "train"),
        at(4, state="idle"),
        at(5, state="failed"),
        at(6, state="dead"),
        RankStack(7, "busy", trouble="stopped (SIGSTOP)"),
    ]
    report = StackReport("m", {"dp": 2, "tp": 4}, stacks, {6: "killed by SIGKILL (signal 9)"})
    assert repr(report).splitlines() == [
        "mesh m   dp=2 × tp=4   5 busy, 1 idle, 1 failed, 1 dead",
        "ranks 0-3 (dp=0,tp=0-3)",
        "  cell 1, line 1, in train   train()",
        "  → rank 3 (dp=0,tp=3)  here",
        "  rank 2 (dp=0,tp=2)",
        "    cell 1, line 1, in sleep   sleep()",
        "  ranks 0-1 (dp=0,tp=0-1)",
        "    cell 1, line 1, in forward   forward()",
        "    → waiting in all_reduce for 12.0-12.5 s",
        "✗ rank 6 (dp=1,tp=2)  dead: killed by SIGKILL (signal 9)",
        "✗ rank 7 (dp=1,tp=3)  stopped (SIGSTOP)",
        "ranks 4-5 (dp=1,tp=0-1)  idle",
    ]


def test_other_threads_are_folded() -> None:
    loader = (("loader", (frame("fetch"), frame("get", 9, "queue.py", is_user=False))),)
    stacks = [RankStack(rank, "idle", others=loader) for rank in range(3)]
    report = StackReport("m", {"rank": 3}, stacks, note="--native: py-spy is not installed")
    assert repr(report).splitlines()[1:] == [
        "ranks 0-2  idle",
        "also thread loader at cell 1, line 1, in fetch, on ranks 0-2",
        "--native: py-spy is not installed",
    ]


def test_a_rank_with_two_such_threads_is_one_rank() -> None:
    stack = RankStack(1, "idle", others=(("loader", (frame("fetch"),)),) * 2)
    said = repr(StackReport("m", {"rank": 3}, [stack])).splitlines()
    assert said[-1] == "also thread loader at cell 1, line 1, in fetch, on rank 1"


def test_its_data_has_a_row_for_each_rank() -> None:
    (row,) = StackReport("m", {"dp": 2}, [at(1, "f", waiting="barrier", seconds=2.0)]).data()
    assert (row["rank"], row["coord"], row["state"], row["waiting"]) == (1, {"dp": 1}, "busy", "barrier")
    assert row["frames"] == [{"file": "cell 1", "line": 1, "name": "f", "source": "f()"}]
