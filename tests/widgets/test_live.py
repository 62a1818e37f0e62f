from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.outcome import Display, Failure, Frame, Outcome
from meshbook.kernel.run import Progress
from meshbook.runtime.wire.tape import Text
from meshbook.widgets.live import WINDOW, LastLines, Live
from meshbook.widgets.stage import StreamName
from tests.widgets.stages import Page, Paper


@pytest.fixture
def paper() -> Paper:
    return Paper()


def out(text: str, stream: StreamName = "stdout") -> Text:
    return Text(1, stream, text)


def shown(text: str, number: int = 1, **fields: Any) -> Display:
    return Display(1, number, {"text/plain": text}, **fields)


def test_equal_lines_are_one_with_all_their_ranks(paper: Paper) -> None:
    live = Live(paper, range(3))
    live.update([(rank, out("step\n")) for rank in range(3)], 0.0)
    assert paper.events == [("stdout", "0-2 │ step\n")]


def test_a_line_waits_for_its_equals_for_a_moment_only(paper: Paper) -> None:
    live = Live(paper, range(2))
    live.update([(0, out("mine\n"))], 0.0)
    assert paper.events == []
    live.update([], WINDOW)
    assert paper.events == [("stdout", "  0 │ mine\n")]


def test_numbers_of_many_ranks_are_one_line_and_what_that_means_is_said_once(paper: Paper) -> None:
    live = Live(paper, range(64))
    for step in range(2):
        live.update([(rank, out(f"step {step} loss {rank}\n")) for rank in range(64)], float(step))
    live.finish(9.0)
    assert [text for _, text in paper.events] == [
        "0-63 │ step 0 loss 0…63\n",
        "   … ┆ a…b: from the least to the most of what ranks say here; `%mesh logs` has each line\n",
        "0-63 │ step 1 loss 0…63\n",
    ]


def test_who_wants_all_has_each_line(paper: Paper) -> None:
    live = Live(paper, range(64), budget=1 << 30)
    live.update([(rank, out(f"loss {rank}\n")) for rank in range(64)], 0.0)
    live.finish(1.0)
    assert len(paper.events[0][1].splitlines()) == 64


def test_late_too_numbers_of_many_ranks_are_one_line(paper: Paper) -> None:
    live = Live(paper, range(64))
    live.finish(0.0)
    live.late([(rank, out(f"loss {rank}\n")) for rank in range(64)], 1.0)
    assert paper.events[0] == ("stdout", "0-63 │ loss 0…63\n")


def test_stderr_is_told_apart(paper: Paper) -> None:
    live = Live(paper, [4])
    live.update([(4, out("a\n")), (4, out("b\n", "stderr")), (4, out("c\n"))], 0.0)
    assert paper.events == [("stdout", "  4 │ a\n"), ("stderr", "  4 │ b\n"), ("stdout", "  4 │ c\n")]


def test_an_unfinished_line_is_told_at_the_end(paper: Paper) -> None:
    live = Live(paper, [0])
    live.update([(0, out("no end"))], 0.0)
    live.update([], 0.2)
    assert paper.events == []
    live.finish(0.2)
    assert paper.events == [("stdout", "  0 │ no end\n")]


def test_equal_displays_are_one(paper: Paper) -> None:
    live = Live(paper, range(2))
    live.update([(0, out("before\n")), (1, out("before\n"))], 0.0)
    live.update([(0, shown("x"))], 0.01)
    live.update([(1, shown("x"))], 0.02)
    assert paper.events == [("stdout", "0-1 │ before\n"), ("stdout", "0-1 │\n"), ("display", "x")]


@pytest.mark.parametrize("now", [0.0, 2.0, 1000.3, 123456.789, 98765.4321])
def test_a_display_stands_where_its_rank_put_it(paper: Paper, now: float) -> None:
    live = Live(paper, range(2))
    live.update([(0, out("before\n")), (0, shown("x")), (0, out("after\n"))], now)
    live.finish(now)
    assert [text for _, text in paper.events] == ["  0 │ before\n", "  0 │\n", "x", "  0 │ after\n"]


def test_different_displays_are_told_with_their_rank(paper: Paper) -> None:
    live = Live(paper, range(2))
    live.update([(0, shown("zero")), (1, shown("one"))], 0.0)
    live.update([], 2 * WINDOW)
    assert paper.events == [("stdout", "  0 │\n"), ("display", "zero"), ("stdout", "  1 │\n"), ("display", "one")]


def test_displays_of_one_moment_stand_in_the_order_of_ranks(paper: Paper) -> None:
    live = Live(paper, range(3))
    live.update([(2, shown("two")), (0, shown("zero")), (1, shown("one"))], 0.0)
    live.update([], 2 * WINDOW)
    assert [text for kind, text in paper.events if kind == "display"] == ["zero", "one", "two"]


def test_a_rank_that_shows_two_things_keeps_its_order(paper: Paper) -> None:
    live = Live(paper, range(3))
    live.update([(1, shown("first")), (1, shown("both", 2)), (0, shown("both"))], 0.0)
    live.update([], 2 * WINDOW)
    assert [text for kind, text in paper.events if kind == "display"] == ["first", "both"]


def test_what_all_show_stands_behind_what_each_has_shown_before(paper: Paper) -> None:
    live = Live(paper, range(2))
    live.update([(0, shown("first 0")), (0, shown("both")), (1, shown("first 1")), (1, shown("both"))], 0.0)
    assert [text for kind, text in paper.events if kind == "display"] == ["first 0", "first 1", "both"]


@given(st.data())
def test_the_displays_of_each_rank_stand_in_its_order(data: st.DataObject) -> None:
    paper, ranks = Paper(), range(3)
    said = data.draw(st.lists(st.tuples(st.sampled_from(ranks), st.sampled_from("abc")), max_size=12))
    cuts = data.draw(st.lists(st.integers(0, len(said)), max_size=3).map(sorted))
    live = Live(paper, ranks)
    for start, end in zip([0, *cuts], [*cuts, len(said)], strict=True):
        live.update([(rank, shown(text)) for rank, text in said[start:end]], data.draw(st.sampled_from([0.0, WINDOW])))
    live.finish(1.0)
    seen: dict[int, list[str]] = {rank: [] for rank in ranks}
    for (_, gutter), (_, text) in pairs(paper.events):
        for rank in ranks_in(gutter):
            seen[rank].append(text)
    assert seen == {rank: [text for each, text in said if each == rank] for rank in ranks}


def pairs(events: Sequence[Any]) -> list[tuple[Any, Any]]:
    """A gutter and what stands behind it."""
    return list(zip(events[::2], events[1::2], strict=True))


def ranks_in(gutter: str) -> list[int]:
    """Of three: `0,2`, `0-2`, `1`, ..."""
    named = gutter.strip(" │\n")
    return [0, 1, 2] if named == "0-2" else [int(rank) for rank in re.findall(r"\d", named)]


def test_one_rank_alone_needs_no_gutter_at_its_displays(paper: Paper) -> None:
    Live(paper, [2]).update([(2, shown("x"))], 0.0)
    assert paper.events == [("display", "x")]


def test_an_update_reaches_the_display_of_its_rank(paper: Paper) -> None:
    live = Live(paper, range(2))
    live.update([(rank, shown("0 %", display_id="bar")) for rank in range(2)], 0.0)
    live.update([(1, shown("100 %", 2, display_id="bar", is_update=True))], 0.01)
    assert ("update", "100 %") in paper.events
    first, second, updated = paper.ids
    assert first != second == updated
    assert "bar" not in paper.ids  # two cells, or two ranks, may use the same name


def test_an_update_of_nothing_shows_nothing(paper: Paper) -> None:
    Live(paper, [0]).update([(0, shown("x", display_id="unknown", is_update=True))], 0.0)
    assert paper.events == []


def test_clear_output_counts_where_one_rank_has_the_area_for_itself(paper: Paper) -> None:
    Live(paper, [0]).update([(0, shown("", is_clear=True, metadata={"wait": True}))], 0.0)
    assert paper.events == [("clear", True)]
    Live(paper, range(2)).update([(0, shown("", is_clear=True))], 0.0)
    assert paper.events == [("clear", True)]


def test_what_a_rank_clears_among_others_its_next_display_replaces() -> None:
    page = Page()
    live = Live(page, range(2))
    for step in range(3):
        live.update([(0, shown("", is_clear=True, metadata={"wait": True})), (0, shown(f"plot {step}"))], step)
        live.update([], step + WINDOW)
    live.finish(9.0)
    assert page.text == "  0 │\n[plot 2]\n"


def test_what_all_ranks_have_shown_alike_stands_until_all_clear() -> None:
    page = Page()
    live = Live(page, range(2))
    live.update([(rank, shown("same")) for rank in range(2)], 0.0)
    live.update([(0, shown("", is_clear=True))], 1.0)
    assert page.text == "0-1 │\n[same]\n"
    live.update([(1, shown("", is_clear=True))], 2.0)
    assert page.text == "0-1 │\n[]\n"
    live.update([(rank, shown("again")) for rank in range(2)], 3.0)
    live.finish(9.0)
    assert page.text == "0-1 │\n[again]\n"


def test_of_two_displays_that_a_rank_clears_and_one_that_follows_one_is_left() -> None:
    page = Page()
    live = Live(page, range(2))
    for count in (2, 1):
        live.update([(1, shown("", is_clear=True, metadata={"wait": True}))], count)
        live.update([(1, shown(f"{count}: {number}")) for number in range(count)], count)
        live.update([], count + WINDOW)
    live.finish(9.0)
    assert page.text == "  1 │\n[1: 0]\n  1 │\n[]\n"


def test_where_nothing_can_be_replaced_a_clear_does_nothing() -> None:
    page = Page(can_update=False)
    live = Live(page, range(2))
    for step in range(2):
        live.update([(0, shown("", is_clear=True)), (0, shown(f"plot {step}"))], step)
    live.finish(9.0)
    assert page.text == "  0 │\n[plot 0]\n  0 │\n[plot 1]\n"


def test_a_quiet_one_tells_all_at_the_end(paper: Paper) -> None:
    live = Live(paper, range(2), is_quiet=True)
    live.update([(0, out("a\n")), (1, out("a\n")), (0, out("b\n"))], 0.0)
    live.update([], 9.0)
    assert paper.events == []
    live.finish(9.0)
    assert paper.events == [("stdout", "0-1 │ a\n  0 │ b\n")]


@pytest.mark.parametrize("options", [{"is_quiet": True}, {"tail": 5}])
def test_displays_wait_for_the_end_too(paper: Paper, options: Any) -> None:
    live = Live(paper, [0], **options)
    live.update([(0, out("before\n")), (0, shown("here")), (0, out("after\n"))], 0.0)
    live.update([], 9.0)
    assert paper.events == []
    live.finish(9.0)
    kinds = [kind for kind, *_ in paper.events]
    assert kinds == (["stdout", "display", "stdout"] if "is_quiet" in options else ["display", "stdout"])


def test_with_a_tail_the_last_lines_are_told(paper: Paper) -> None:
    live = Live(paper, range(2), tail=1)
    live.update([(rank, out(f"{i}\n")) for i in range(9) for rank in range(2)], 0.0)
    live.finish(0.0)
    assert paper.events == [("stdout", "0-1 │ 8\n")]


def test_what_goes_over_the_budget_is_counted(paper: Paper) -> None:
    live = Live(paper, [0], budget=300)
    live.update([(0, out(f"line {i}\n")) for i in range(1000)], 0.0)
    live.finish(0.0)
    told = "".join(text for _, text in paper.events)
    assert len(told) < 600
    assert "more lines (" in told
    assert "`%mesh logs` has all" in told
    assert told.endswith("line 999\n")


def test_of_a_line_over_the_budget_the_end_is_told_and_how_much_is_missing(paper: Paper) -> None:
    live = Live(paper, [0], budget=300)
    live.update([(0, out(f"{'x' * 100_000} the end\n"))], 0.0)
    live.finish(0.0)
    gap, line = "".join(text for _, text in paper.events).splitlines()
    assert gap == "  … ┆ the beginning of this line: `%mesh logs` has all"
    assert line.startswith("  0 │ … xxx") and line.endswith("x the end")


def test_what_comes_late_is_told_in_whole_lines(paper: Paper) -> None:
    live = Live(paper, range(2))
    live.finish(0.0)
    live.late([(0, out("la"))], 1.0)
    assert paper.events == []
    live.late([(0, out("te\nmo")), (1, shown("x"))], 2.0)
    live.late([(0, out("re\n"))], 3.0)
    assert paper.events == [
        ("stdout", "  0 │ late\n"),
        ("stdout", "  1 │\n"),
        ("display", "x"),
        ("stdout", "  0 │ more\n"),
    ]


def test_of_a_flood_that_comes_late_it_is_told_that_there_is_more(paper: Paper) -> None:
    live = Live(paper, [0])
    live.finish(0.0)
    for number in range(3_000):
        live.late([(0, out(f"line {number}\n"))], float(number))
    told = [text for _, text in paper.events]
    assert told[:-1] == [f"  0 │ line {number}\n" for number in range(len(told) - 1)]
    assert told[-1] == "  … ┆ more is not shown here: `%mesh logs` has all\n"


@pytest.mark.parametrize("message", ["boom\nand more", "\n  boom\nand more"])
def test_a_failure_is_told_while_others_work(paper: Paper, message: str) -> None:
    frames = (
        Frame("cell 4", 2, "<module>", "f()", True),
        Frame("cell 3", 7, "f", "g()", True),
        Frame("g.py", 1, "g", "", False),
    )
    outcome = Outcome(failure=Failure("ValueError", message, frames, ""))
    progress = Progress(outcomes={3: msgspec.msgpack.encode(outcome)}, failed=[3])
    live = Live(paper, range(4))
    live.tell_failures(progress, [0, 1])
    assert paper.events == [("stderr", "  3 ✗ ValueError: boom (cell 3 line 7); 0-1 still work\n")]


def test_what_a_failure_was_caused_by_is_told_with_it(paper: Paper) -> None:
    said = "stage failed\nits arguments\ncaused by OSError: gone\ncaused by ValueError: bad (cell 3, line 2)"
    outcome = Outcome(failure=Failure("RuntimeError", said, (Frame("cell 3", 7, "<module>", "f()", True),), ""))
    Live(paper, range(4)).tell_failures(Progress(outcomes={3: msgspec.msgpack.encode(outcome)}, failed=[3]), [0])
    [(_, told)] = paper.events
    assert told == (
        "  3 ✗ RuntimeError: stage failed (cell 3 line 7), caused by ValueError: bad (cell 3, line 2); 0 still works\n"
    )


def test_a_failure_with_a_line_without_end_is_told_by_its_beginning(paper: Paper) -> None:
    failure = Failure("ValueError", "x" * 9_000, (Frame("cell 3", 7, "<module>", "f()", True),), "")
    outcome = msgspec.msgpack.encode(Outcome(failure=failure))
    Live(paper, range(4)).tell_failures(Progress(outcomes={3: outcome}, failed=[3]), [0])
    [(_, told)] = paper.events
    assert told.startswith("  3 ✗ ValueError: xxx") and told.endswith("xxx… (cell 3 line 7); 0 still works\n")
    assert len(told) < 400


def test_what_ends_in_brackets_has_its_line_too(paper: Paper) -> None:
    said = "mat1 and mat2 shapes cannot be multiplied (2x9 and 8x8)"
    outcome = Outcome(failure=Failure("RuntimeError", said, (Frame("cell 3", 7, "<module>", "f(x)", True),), ""))
    Live(paper, range(4)).tell_failures(Progress(outcomes={3: msgspec.msgpack.encode(outcome)}, failed=[3]), [0])
    assert paper.events == [("stderr", f"  3 ✗ RuntimeError: {said} (cell 3 line 7); 0 still works\n")]


def test_a_syntax_error_says_itself_where(paper: Paper) -> None:
    said = "invalid syntax (cell 3, line 7)"
    outcome = Outcome(failure=Failure("SyntaxError", said, (Frame("cell 3", 7, "<module>", "x = = 1", True),), ""))
    Live(paper, range(4)).tell_failures(Progress(outcomes={3: msgspec.msgpack.encode(outcome)}, failed=[3]), [0])
    assert paper.events == [("stderr", f"  3 ✗ SyntaxError: {said}; 0 still works\n")]


def test_failures_that_differ_are_told_by_the_lowest_rank(paper: Paper) -> None:
    failures = {rank: Outcome(failure=Failure("ValueError", f"bad {rank}", (), "")) for rank in (7, 2, 5)}
    outcomes = {rank: msgspec.msgpack.encode(outcome) for rank, outcome in failures.items()}
    Live(paper, range(8)).tell_failures(Progress(outcomes=outcomes, failed=[7, 2, 5]), [0])
    assert paper.events == [("stderr", "2,5,7 ✗ ValueError: bad 2, and 2 others; 0 still works\n")]


def test_a_death_is_told_with_its_last_words_while_others_work(paper: Paper) -> None:
    live = Live(paper, range(4))
    live.tell_deaths({2: "rank 2 exited with code 3\n  last\n  words"}, [0])
    live.tell_deaths({3: "rank 3 ended"}, [])
    assert paper.events == [
        ("stderr", "  2 ✗ rank 2 exited with code 3; 0 still works\n    ┆ last\n    ┆ words\n"),
        ("stderr", "  3 ✗ rank 3 ended\n"),
    ]


def test_of_many_deaths_a_few_are_told_in_full(paper: Paper) -> None:
    Live(paper, range(64)).tell_deaths({rank: f"rank {rank} ended" for rank in range(60)}, [60, 61])
    [(_, told)] = paper.events
    assert told.splitlines()[-1] == "   … ✗ and 56 more ranks: 4-59"
    assert (told.count("ended"), told.count("60-61 still work")) == (4, 1)


def test_of_deaths_that_come_one_after_the_other_a_few_are_told_in_full_too(paper: Paper) -> None:
    live = Live(paper, range(64))
    live.tell_deaths({rank: f"rank {rank} ended\n  words" for rank in range(3)}, [9])
    live.tell_deaths({rank: f"rank {rank} ended\n  words" for rank in range(3, 6)}, [9])
    live.tell_deaths({7: "rank 7 ended"}, [9])
    told = "".join(text for _, text in paper.events).splitlines()
    assert sum(line.endswith("words") for line in told) == 4
    assert told[-2:] == ["   … ✗ and 2 more ranks: 4-5", "   … ✗ and 1 more rank: 7; 9 still works"]


def test_last_lines_join_what_was_written_in_pieces() -> None:
    kept = LastLines(2)
    for piece in ("one\ntw", "o\nth", "ree\nfo", "ur"):
        kept.add(0, out(piece))
    assert "".join(text.text for _, text in kept.take()) == "three\nfour"
    assert kept.take() == []


def test_the_last_lines_are_those_that_are_seen() -> None:
    kept = LastLines(2)
    for said in ("loss 0.1\ndo", "ne\n\r0/5", "\r1/5", "\r2/5\n", "a\x0cb\u2028c"):
        kept.add(0, out(said))
    assert [text.text for _, text in kept.take()] == ["2/5\n", "a\x0cb\u2028c"]
    kept.add(0, out("done\n0/5\r"))
    kept.add(0, out("5/5\r\n"))
    assert [text.text for _, text in kept.take()] == ["done\n", "5/5\r\n"]
