"""Pictures of several ranks in a cell's output; what else is shown there is tested with `Live`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from meshbook.kernel.outcome import Display
from meshbook.runtime.wire.tape import Text
from meshbook.widgets.displays import WINDOW
from meshbook.widgets.live import Live
from tests.widgets.stages import Page, Paper


def picture(name: str, **fields: Any) -> Display:
    return Display(1, 1, {"image/png": name, "text/plain": name}, **fields)


def table(name: str) -> Display:
    return Display(1, 1, {"text/html": f"<table><tr><td>{name}</td></tr></table>", "text/plain": name})


def out(text: str) -> Text:
    return Text(1, "stdout", text)


def cleared(*, wait: bool = True) -> Display:
    return Display(1, 1, {}, is_clear=True, metadata={"wait": wait})


@pytest.fixture
def page() -> Page:
    return Page()


def test_pictures_of_all_ranks_are_shown_at_once_in_one_place(page: Page) -> None:
    Live(page, range(3)).update([(rank, picture(f"p{rank}")) for rank in (2, 0, 1)], 0.0)
    assert page.blocks == ["[0-2 │]\n", "[0 │ p0\n1 │ p1\n2 │ p2]\n"]


def test_tables_of_all_ranks_are_shown_side_by_side_each_line_under_the_one_above(page: Page) -> None:
    Live(page, range(2)).update([(rank, table(f"  loss\n{rank}  0.5")) for rank in range(2)], 0.0)
    assert page.blocks == ["[0-1 │]\n", "[0 │\n  loss\n0  0.5\n1 │\n  loss\n1  0.5]\n"]


def test_what_has_a_script_of_its_own_is_shown_alone(page: Page) -> None:
    live = Live(page, range(2))
    live.update([(rank, Display(1, 1, {"text/html": f"<script>draw({rank})</script>"})) for rank in range(2)], 0.0)
    live.finish(1.0)
    assert [data for data, *_ in page.shown] == [{"text/html": f"<script>draw({rank})</script>"} for rank in range(2)]


def test_pictures_wait_for_those_of_others_but_not_long(page: Page) -> None:
    live = Live(page, range(4))
    for rank, now in ((0, 0.0), (1, 0.25), (2, 0.5)):
        live.update([(rank, picture("p"))], now)
        live.update([], now + 0.2)
    assert page.blocks == []
    live.update([], 0.8)
    assert page.blocks == ["[0-2 │]\n", "[p]\n"]


def test_the_first_does_not_wait_for_ever(page: Page) -> None:
    live = Live(page, range(99))
    for rank in range(11):
        assert page.blocks == []
        live.update([(rank, picture(f"{rank}"))], rank / 10)
    assert len(page.blocks) == 2


def test_a_picture_that_comes_later_joins_the_others(page: Page) -> None:
    live = Live(page, range(3))
    live.update([(0, picture("p0"))], 0.0)
    live.update([], 0.5)
    assert page.blocks == ["[  0 │]\n", "[p0]\n"]
    live.update([(1, out("now\n")), (2, picture("p2"))], 1.0)
    live.update([(1, picture("p1"))], 2.0)
    live.finish(2.1)
    assert page.blocks == ["[0,2 │]\n", "[0 │ p0\n2 │ p2]\n", "  1 │ now\n", "[  1 │]\n", "[p1]\n"]


def test_a_bar_that_moves_keeps_no_picture_from_the_others(page: Page) -> None:
    live = Live(page, range(2))
    for step in range(10):
        for rank in range(2):
            live.update([(rank, out(f"\r{10 * step}%"))], step / 10 + rank / 100)
            if step == 3 + 4 * rank:
                live.update([(rank, picture(f"p{rank}"))], step / 10 + rank / 100)
        live.update([], step / 10 + WINDOW)
    live.finish(2.0)
    assert page.blocks == ["[0-1 │ 90%]\n", "[0-1 │]\n", "[0 │ p0\n1 │ p1]\n"]


def test_each_picture_of_a_rank_that_lags_behind_joins_those_it_belongs_to(page: Page) -> None:
    live = Live(page, range(2))
    for rank in range(2):
        for step in range(3):
            live.update([(rank, picture(f"{step} of {rank}"))], 10.0 * rank + step)
            live.update([], 10.0 * rank + step + 0.5)
    live.finish(20.0)
    assert page.blocks[1::2] == [f"[0 │ {step} of 0\n1 │ {step} of 1]\n" for step in range(3)]


def test_what_ranks_show_alike_behind_others_leaves_none_of_them_before(page: Page) -> None:
    live = Live(page, range(3))
    live.update([(0, picture("first"))], 0.0)
    live.update([], 0.5)
    live.update([(2, out("line\n"))], 1.0)
    live.update([(0, picture("second"))], 2.0)
    live.update([], 3.0)
    live.update([(rank, picture("both")) for rank in (1, 2)], 4.0)
    live.update([(1, picture("last"))], 5.0)
    live.finish(6.0)
    assert seen_on(page)[1] == ["both", "last"]


def test_what_a_rank_has_said_before_its_picture_stands_before_it(page: Page) -> None:
    live = Live(page, range(2))
    live.update([(0, picture("p0"))], 0.0)
    live.update([(1, out("a line\n"))], 0.3 - WINDOW / 2)
    live.update([], 0.3)  # the picture's time has come, the line's not yet
    live.update([(1, picture("p1"))], 0.31)
    live.finish(1.0)
    assert page.blocks == ["  1 │ a line\n", "[0-1 │]\n", "[0 │ p0\n1 │ p1]\n"]


def test_what_a_rank_says_after_its_picture_shows_it_at_once(page: Page) -> None:
    live = Live(page, range(2))
    live.update([(0, picture("p0")), (0, out("after\n"))], 0.0)
    live.update([], WINDOW)
    assert page.blocks == ["[  0 │]\n", "[p0]\n", "  0 │ after\n"]


def test_a_plot_that_each_rank_draws_anew_stays_in_its_place_beside_the_others(page: Page) -> None:
    live = Live(page, range(2))
    for step in range(4):
        for rank in range(2):
            said = [(rank, cleared()), (rank, out(f"step {step}\n")), (rank, picture(f"{step} of {rank}"))]
            live.update(said, step + rank / 10)
            live.update([], step + rank / 10 + WINDOW)
    live.finish(9.0)
    assert [block for block in page.blocks if "step" not in block] == ["[0-1 │]\n", "[0 │ 3 of 0\n1 │ 3 of 1]\n"]


def test_pictures_that_all_have_cleared_are_gone(page: Page) -> None:
    live = Live(page, range(2))
    live.update([(rank, picture(f"p{rank}")) for rank in range(2)], 0.0)
    live.update([(0, cleared(wait=False))], 1.0)
    assert page.blocks == ["[0-1 │]\n", "[0 │ p0\n1 │ p1]\n"]
    live.update([(1, cleared(wait=False))], 2.0)
    assert page.blocks == ["[]\n", "[]\n"]
    live.update([(rank, picture(f"q{rank}")) for rank in range(2)], 3.0)
    assert page.blocks == ["[0-1 │]\n", "[0 │ q0\n1 │ q1]\n"]


def draw_anew(page: Page, names: str, steps: int) -> None:
    """Two ranks draw these plots at each step, in place of those before."""
    live = Live(page, range(2))
    for step in range(steps):
        said = [(rank, cleared()) for rank in range(2)]
        said += [(rank, picture(f"{name}{step} of {rank}")) for name in names for rank in range(2)]
        live.update(said, float(step))
    live.finish(99.0)


def test_two_plots_that_each_rank_draws_anew_stay_in_their_places(page: Page) -> None:
    draw_anew(page, "ab", steps=20)
    assert page.blocks[1::2] == ["[0 │ a19 of 0\n1 │ a19 of 1]\n", "[0 │ b19 of 0\n1 │ b19 of 1]\n"]


def test_of_more_plots_than_can_be_kept_no_step_is_left_on_the_page(page: Page) -> None:
    draw_anew(page, "abcdefg", steps=5)
    shown = [block for block in page.blocks[1::2] if block != "[]\n"]
    assert sorted(shown) == [f"[0 │ {name}4 of 0\n1 │ {name}4 of 1]\n" for name in "abcdefg"]
    assert len(page.blocks) == 14


def test_who_has_spoken_below_a_place_that_is_used_again_does_not_join_there(page: Page) -> None:
    live = Live(page, range(2))
    for name in "abcdef":
        live.update([(0, picture(name)), (0, out(f"after {name}\n"))], 0.0)
    live.update([(1, out("here\n")), (0, cleared())], 1.0)
    live.update([(0, picture(name)) for name in "uvwxyz"], 2.0)
    live.update([], 9.0)
    live.update([(1, picture("mine"))], 10.0)
    live.finish(11.0)
    assert "".join(page.blocks[-3:]) == "  1 │ here\n[  1 │]\n[mine]\n"


def test_what_else_takes_the_place_of_pictures_stays_there(page: Page) -> None:
    live = Live(page, range(2))
    live.update([(rank, picture(f"p{rank}")) for rank in range(2)], 0.0)
    live.update([(rank, cleared()) for rank in range(2)], 1.0)
    live.update([(rank, Display(1, 1, {"text/plain": "done"})) for rank in range(2)], 2.0)
    live.update([(0, picture("q"))], 3.0)
    live.finish(9.0)
    assert page.blocks == ["[0-1 │]\n", "[done]\n", "[  0 │]\n", "[q]\n"]


def test_the_ranks_are_named_again_above_a_place_that_was_empty(page: Page) -> None:
    live = Live(page, range(2))
    live.update([(rank, picture(f"p{rank}")) for rank in range(2)], 0.0)
    live.update([(rank, cleared(wait=False)) for rank in range(2)], 1.0)
    assert page.blocks == ["[]\n", "[]\n"]
    live.update([(rank, Display(1, 1, {"text/plain": "done"})) for rank in range(2)], 2.0)
    assert page.blocks == ["[0-1 │]\n", "[done]\n"]


def test_large_pictures_are_not_all_in_one_message() -> None:
    paper, large = Paper(), "A" * 3_000_000
    live = Live(paper, range(5))
    live.update(
        [(rank, Display(1, 1, {"image/png": f"{rank}{large}", "text/plain": f"{rank}"})) for rank in range(5)], 0.0
    )
    assert [data["text/plain"] for data, *_ in paper.shown[1::2]] == ["0 │ 0\n1 │ 1", "2 │ 2\n3 │ 3", "4"]


def test_what_a_rank_has_cleared_elsewhere_goes_when_its_picture_joins_others(page: Page) -> None:
    live = Live(page, range(2))
    live.update([(0, Display(1, 1, {"text/plain": "a table"}))], 0.0)
    live.update([(1, picture("p1"))], 1.0)
    live.update([], 2.0)
    live.update([(0, cleared()), (0, picture("p0"))], 3.0)
    live.finish(4.0)
    assert page.blocks == ["  0 │\n", "[]\n", "[0-1 │]\n", "[0 │ p0\n1 │ p1]\n"]


def named(rank: int, name: str = "mine", **fields: Any) -> Display:
    return picture(f"p{rank}", display_id=name, **fields)


def test_pictures_that_have_names_are_updated_beside_the_others(page: Page) -> None:
    live = Live(page, range(2))
    live.update([(rank, named(rank)) for rank in range(2)], 0.0)
    for step in range(1, 4):
        live.update([(1, picture(f"{step}", display_id="mine", is_update=True))], step / 20)
    assert page.blocks == ["[0-1 │]\n", "[0 │ p0\n1 │ p1]\n"]
    live.update([], 0.4)
    assert page.blocks == ["[0-1 │]\n", "[0 │ p0\n1 │ 3]\n"]


def test_names_outlive_the_cell(page: Page) -> None:
    names: Any = {}
    first = Live(page, range(2), named=names)
    first.update([(rank, named(rank)) for rank in range(2)], 0.0)
    first.update([(0, picture("q0", display_id="mine", is_update=True))], 0.1)
    first.finish(0.1)
    assert page.blocks == ["[0-1 │]\n", "[0 │ q0\n1 │ p1]\n"]
    for cell, rank in enumerate([0, 1, 1]):
        again = Live(page, [rank], named=names)
        again.update([(rank, picture(f"{cell} of {rank}", display_id="mine", is_update=True))], 1.0 + cell)
        again.finish(1.0 + cell)
    assert page.blocks == ["[0-1 │]\n", "[0 │ 0 of 0\n1 │ 2 of 1]\n"]


def test_a_picture_that_becomes_something_else_stays_in_its_place(page: Page) -> None:
    live = Live(page, range(2))
    live.update([(rank, named(rank)) for rank in range(2)], 0.0)
    live.update([(0, Display(1, 1, {"text/plain": "no <loss>"}, display_id="mine", is_update=True))], 1.0)
    live.finish(2.0)
    assert page.blocks == ["[0-1 │]\n", "[0 │ no <loss>\n1 │ p1]\n"]
    data, *_ = page.shown[-1]
    assert "<pre>no &lt;loss&gt;</pre>" in str(data["text/html"])


def test_what_stands_where_pictures_were_is_not_updated_by_their_names(page: Page) -> None:
    live = Live(page, range(2))
    live.update([(rank, named(rank)) for rank in range(2)], 0.0)
    live.update([(rank, cleared(wait=False)) for rank in range(2)], 1.0)
    live.update([(rank, Display(1, 1, {"text/plain": "done"})) for rank in range(2)], 2.0)
    live.update([(0, picture("q", display_id="mine", is_update=True))], 3.0)
    live.finish(9.0)
    assert page.blocks == ["[0-1 │]\n", "[done]\n"]


def test_of_very_many_pictures_that_have_names_the_oldest_are_forgotten(page: Page) -> None:
    names: Any = {}
    live, large = Live(page, range(2), named=names), "A" * 7_000_000
    for step in range(12):
        said = [(rank, Display(1, 1, {"image/png": f"{large}{rank}{step}"}, display_id=f"{step}")) for rank in range(2)]
        live.update(said, float(step))
    live.finish(99.0)
    kept = {name for _, name in names}
    assert kept == {"8", "9", "10", "11"}


def test_where_nothing_can_be_updated_pictures_stand_below_each_other() -> None:
    page = Page(can_update=False)
    live = Live(page, range(2))
    live.update([(rank, picture(f"p{rank}")) for rank in range(2)], 0.0)
    live.update([], WINDOW)
    assert page.blocks == ["  0 │\n", "[p0]\n", "  1 │\n", "[p1]\n"]


def test_one_rank_alone_shows_its_pictures_as_they_come(page: Page) -> None:
    live = Live(page, [3])
    live.update([(3, picture("p")), (3, picture("q"))], 0.0)
    assert page.blocks == ["[p]\n", "[q]\n"]


def test_what_comes_late_keeps_its_order(page: Page) -> None:
    live = Live(page, range(2))
    live.finish(0.0)
    live.late([(0, picture("p")), (0, out("after\n"))], 1.0)
    assert page.blocks == ["[  0 │]\n", "[p]\n", "  0 │ after\n"]


def test_pictures_that_change_all_the_time_are_not_drawn_each_time_late_either(page: Page) -> None:
    live = Live(page, range(2))
    live.update([(rank, named(rank)) for rank in range(2)], 0.0)
    live.finish(0.0)
    update = {"display_id": "mine", "is_update": True}
    assert live.late([(0, picture("q0", **update))], 1.0) is None
    wait = live.late([(0, picture("r0", **update))], 1.05)
    assert wait == pytest.approx(0.2)
    assert page.blocks[-1] == "[0 │ q0\n1 │ p1]\n"
    assert live.late([(1, picture("q1", **update))], 1.3) is None
    assert page.blocks[-1] == "[0 │ r0\n1 │ q1]\n"
    live.late([(1, picture("last", **update))], 1.35, is_last=True)
    assert page.blocks[-1] == "[0 │ r0\n1 │ last]\n"


def test_late_too_a_picture_stands_behind_what_its_rank_has_said_before(page: Page) -> None:
    live = Live(page, range(2))
    live.finish(0.0)
    live.late([(0, picture("p0")), (1, out("line\n")), (0, out("more\n")), (1, picture("p1"))], 1.0)
    live.late([], 2.0)
    assert page.text.index("line") < page.text.index("p1")


SHOWN: dict[str, Callable[[str], Text | Display]] = {
    "line": lambda name: out(f"{name}\n"),
    "picture": picture,
    "table": table,
    "text": lambda name: Display(1, 1, {"text/plain": name}),
}


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(sorted(SHOWN)), st.sampled_from([0.0, 0.02, 0.2, 2.0])),
        max_size=20,
    )
)
@example([(0, "picture", 0.2), (1, "line", 0.2), (1, "picture", 0.0)])
@example([(0, "picture", 2.0), (1, "text", 2.0), (1, "picture", 0.0)])
def test_what_each_rank_says_and_shows_stands_in_its_order(events: list[tuple[int, str, float]]) -> None:
    page, now = Page(), 0.0
    live = Live(page, range(3))
    said: dict[int, list[str]] = {rank: [] for rank in range(3)}
    for number, (rank, kind, wait) in enumerate(events):
        name = f"{kind}{number}"
        said[rank].append(name)
        live.update([(rank, SHOWN[kind](name))], now)
        now += wait
        live.update([], now)
    live.finish(now)
    assert seen_on(page) == said


def seen_on(page: Page) -> dict[int, list[str]]:
    """What a reader sees of each rank, from above: of a display that names no rank, the line above it does."""
    seen: dict[int, list[str]] = {rank: [] for rank in range(3)}
    above = ""
    for line in page.text.replace("[", "").replace("]", "").splitlines():
        who, _, what = line.rpartition("│")
        for rank in re.findall(r"\d", who or above) if what.strip() else ():
            seen[int(rank)].append(what.strip())
        above = who
    return seen


def test_of_a_thousand_ranks_that_show_pictures_none_is_lost() -> None:
    paper = Paper()
    live = Live(paper, range(1000))
    for first in range(0, 1000, 25):  # as many as come between two looks
        live.update([(rank, picture(f"p{rank}")) for rank in range(first, first + 25)], first / 500)
    live.finish(9.0)
    last, _, _ = paper.shown[-1]
    assert len(str(last["text/plain"]).splitlines()) == 1000
    assert len(paper.shown) < 20
