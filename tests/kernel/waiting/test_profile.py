"""Where ranks spend their time, of made-up looks at their stacks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from meshbook.kernel.outcome import Frame
from meshbook.kernel.waiting.profile import NOBODY_WORKS, Profile, profile
from meshbook.kernel.waiting.stacks import RankStack

STEP = Frame("cell 4", 6, "<module>", "loss.backward()", True)
LOAD = Frame("cell 4", 5, "<module>", "batch = next(batches)", True)
ENGINE = Frame("/usr/lib/python3/site-packages/torch/autograd/graph.py", 865, "_engine_run_backward", "run()", False)


def at(rank: int, *frames: Frame, waiting: str = "") -> RankStack:
    return RankStack(rank, "busy" if frames else "idle", frames, waiting)


def looks(*of_ranks: Sequence[RankStack]) -> list[list[RankStack]]:
    """For each rank what it was seen at, one look after the other."""
    return [list(look) for look in zip(*of_ranks, strict=True)]


def alike(rank: int, num_loads: int, num_waits: int = 0) -> list[RankStack]:
    """Ten looks: so many at the loader, so many at a wait, the rest in backward."""
    waits = [at(rank, STEP, ENGINE, waiting="all_reduce")] * num_waits
    return [at(rank, LOAD)] * num_loads + waits + [at(rank, STEP, ENGINE)] * (10 - num_loads - num_waits)


def test_what_all_share_is_a_line_and_who_differs_stands_behind_it() -> None:
    told = Profile(looks(alike(0, 1, 4), alike(1, 1, 5), alike(2, 6), alike(3, 0, 4)), seconds=3.0)
    assert repr(told).splitlines() == [
        "where ranks 0-3 were in 10 looks of 3 s",
        "90…100 %  cell 4, line 6  loss.backward()  rank 2: 40 %",
        " 40…60 %    …/autograd/graph.py, line 865, in _engine_run_backward",
        " 40…50 %    waiting in all_reduce  rank 2: 0 %",
        "  0…10 %  cell 4, line 5  batch = next(batches)  rank 2: 60 %",
    ]


def test_ranks_that_differ_are_told_by_which_way() -> None:
    told = Profile(looks(*[alike(rank, loads) for rank, loads in enumerate((5, 5, 5, 9, 8, 0))]), seconds=1.0)
    [step, load] = told.shares
    assert (load.usual, load.odd) == ("50 %", "ranks 3-4: 80…90 %, rank 5: 0 %")
    assert step.odd == "rank 5: 100 %, ranks 3-4: 10…20 %"


def test_of_two_that_differ_both_are_told() -> None:
    [_, load] = Profile(looks(alike(0, 0), alike(1, 6)), seconds=1.0).shares
    assert load.odd == "rank 1: 60 %, rank 0: 0 %"


def test_who_does_nothing_is_told_by_its_state() -> None:
    told = Profile(looks([at(0)] * 4, [at(1, STEP)] * 2 + [at(1)] * 2), seconds=1.0)
    assert {share.place: dict(share.parts) for share in told.shares} == {
        "idle": {0: 1.0, 1: 0.5},
        "cell 4, line 6": {0: 0.0, 1: 0.5},
    }


def test_a_library_without_a_line_of_the_users_is_told_itself() -> None:
    [share] = Profile([[at(0, ENGINE)]], seconds=1.0).shares
    assert share.place == "…/autograd/graph.py, line 865, in _engine_run_backward" and share.inside == ()


def test_code_without_a_file_is_told_at_the_line_that_runs_it() -> None:
    [share] = Profile([[at(0, LOAD, Frame("<string>", 2, "__init__", "", True))]], seconds=1.0).shares
    assert share.place == "cell 4, line 5" and share.inside == ()


def test_rare_lines_are_left_out_and_many_are_counted() -> None:
    often = [at(0, Frame("a.py", line, "f", "", True)) for line in range(20) for _ in range(3)]
    rare = [at(0, Frame("a.py", 99, "f", "", True))]
    told = Profile([[stack] for stack in [*often, *rare]], seconds=1.0)
    assert len(told.shares) == 20
    assert repr(told).endswith("\n… and 8 more lines") and "and 8 more lines" in told._repr_html_()


def test_the_page_and_the_data_say_the_same() -> None:
    told = Profile(looks(alike(0, 1), alike(1, 7)), seconds=1.0)
    page = told._repr_html_().replace("\xa0", " ")
    assert "where ranks 0-1 were in 10 looks of 1 s" in page and "<strong>rank 1: 70 %, rank 0: 10 %</strong>" in page
    assert "<code>batch = next(batches)</code>" in page
    [first, *_] = told.data()["shares"]
    assert first["place"] == "cell 4, line 6" and first["parts"] == {0: 0.9, 1: 0.3}
    assert first["inside"][0]["parts"] == {0: 0.9, 1: 0.3}


def test_it_looks_for_as_long_as_it_was_told() -> None:
    told = profile(lambda: [at(0, STEP)], 0.3)
    assert 1 <= told.num_looks <= 8 and told.seconds >= 0.3 and not told.note


def test_who_looks_at_ranks_that_do_nothing_is_told_what_to_look_at() -> None:
    told = profile(lambda: [at(0), at(1)], 600.0, advice="look while they do")
    assert told.note == f"{NOBODY_WORKS}: look while they do" and repr(told).endswith(told.note)
    assert profile(lambda: [at(0), at(1)], 600.0).note == NOBODY_WORKS


def test_who_rests_may_have_seen_enough() -> None:
    rests: list[float] = []

    def rest(seconds: float) -> bool:
        rests.append(seconds)
        return len(rests) < 4

    told = profile(lambda: [at(0, STEP)], 600.0, rest)
    assert told.num_looks == len(rests) == 4 and told.shares[0].parts == {0: 1.0}


def test_stop_ends_the_looking_and_shows_what_was_seen() -> None:
    seen: list[int] = []

    def look() -> list[RankStack]:
        if len(seen) == 3:
            raise KeyboardInterrupt
        seen.append(0)
        return [at(0, STEP)]

    assert profile(look, 600.0).num_looks == 3
    with pytest.raises(KeyboardInterrupt):
        profile(look, 600.0)  # before there is anything to show
