"""The story of an error: equal failures once, the user's own lines, everybody's fate, what to type."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Sequence
from dataclasses import replace

import pytest

from meshbook.kernel.failures.story import in_full, noted, tell, with_way_to_tracebacks, without_escapes
from meshbook.kernel.outcome import Failure, Frame
from meshbook.runtime.errors import MeshError

AXES = {"dp": 2, "tp": 4}
FRAMES = (
    Frame("cell 5", 1, "<module>", 'if coord["tp"] == 3: check(l)', True),
    Frame("cell 2", 9, "check", 'raise ValueError("loss is nan")', True),
)
BOOM = Failure("ValueError", "loss is nan", FRAMES, "")


def test_the_whole_story() -> None:
    waited = "waited in all_reduce (line 2) for dp=1,tp=3"
    story = tell(AXES, range(4, 8), {7: BOOM}, waiting=dict.fromkeys([4, 5, 6], waited))
    assert story.summary == "1 of 4 ranks failed (dp=1,tp=3)"
    assert (
        story.text()
        == """\
✗ 1 of 4 ranks failed
dp=1,tp=3  ValueError: loss is nan
     cell 5, line 1
   → 1  if coord["tp"] == 3: check(l)
     cell 2, line 9, in check
   → 9  raise ValueError("loss is nan")
◌ dp=1,tp=0-2 ×3  waited in all_reduce (line 2) for dp=1,tp=3
look inside: %mesh debug --pm   run it again on all: %%on_mesh 4-7"""
    )


def test_a_line_that_nobody_has_is_not_shown() -> None:
    """As of what `exec` runs."""
    frames = (Frame("cell 5", 1, "<module>", "exec(code)", True), Frame("<string>", 2, "f", "", True))
    text = tell(AXES, [0], {0: Failure("ValueError", "no", frames, "")}).text()
    assert "   → 1  exec(code)\n     <string>, line 2, in f\nlook inside" in text


def test_colour_adds_nothing_but_colour() -> None:
    story = tell(AXES, range(8), {7: BOOM}, {0: "died: SIGKILL"}, {1: "waited"}, {0: ["last words"]})
    coloured = story.text(ansi=True)
    assert coloured != story.text() == without_escapes(coloured)


def test_whoever_reads_an_error_reads_its_story() -> None:
    story = tell(AXES, range(4, 8), {7: BOOM}, waiting={4: "waited"})
    error = noted(MeshError(story.summary), story)
    travelled = pickle.loads(pickle.dumps(error))
    told = """\
MeshError: 1 of 4 ranks failed (dp=1,tp=3)
dp=1,tp=3  ValueError: loss is nan
     cell 5, line 1
   → 1  if coord["tp"] == 3: check(l)
     cell 2, line 9, in check
   → 9  raise ValueError("loss is nan")
◌ dp=1,tp=0  waited
"""
    for each in (error, travelled):
        assert str(each) == story.summary
        assert "".join(traceback.format_exception(each)).removeprefix("meshbook.runtime.errors.") == told
        assert without_escapes("\n".join(each._render_traceback_()[:-1])) == story.text()
    assert noted(MeshError(story.summary), replace(story, tracebacks="all"))._render_traceback_()[0] == "all"


def test_equal_failures_are_one_chapter_and_their_messages_are_counted() -> None:
    failures = {rank: Failure("ValueError", f"bad on {'abcdefgh'[rank]}", FRAMES, "") for rank in range(8)}
    [chapter] = tell(AXES, range(8), failures).chapters
    assert (chapter.where, chapter.num_ranks) == ("dp=0-1,tp=0-3", 8)
    assert (chapter.messages, chapter.num_messages) == (("bad on a", "bad on b", "bad on c"), 8)


def test_what_a_story_leaves_out_stands_in_the_tracebacks() -> None:
    inner = Frame("/lib/json/decoder.py", 353, "raw_decode", "scan(s)", False)
    cases = {
        "whole": Failure("ValueError", "loss is nan", FRAMES, "Traceback …"),
        "long": Failure("ValueError", "x" * 5_000, FRAMES, "Traceback …"),
        "deep": Failure("ValueError", "loss is nan", FRAMES * 9, "Traceback …"),
        "library": Failure("ValueError", "loss is nan", (*FRAMES, inner), "Traceback …"),
        "unreadable": Failure("SyntaxError", "y" * 5_000, FRAMES[:1], ""),
    }
    hinted = {
        name: "%tb" in with_way_to_tracebacks(tell(AXES, [0, 1], {0: each})).text() for name, each in cases.items()
    }
    assert hinted == {"whole": False, "long": True, "deep": True, "library": True, "unreadable": True}
    [*_, hints] = with_way_to_tracebacks(tell(AXES, [0, 1], {0: cases["long"]})).text().splitlines()
    assert hints.startswith("look inside: %mesh debug --pm   whole traceback: %tb   run again on it alone: ")


def test_no_single_frame_is_left_out() -> None:
    """Its place would take as much as it does."""
    for depth, left_out in ((6, ""), (7, ""), (8, "… 2 more frames")):
        frames = tuple(Frame("cell 1", line, "f", "f()", True) for line in range(depth))
        text = tell(AXES, [0], {0: Failure("ValueError", "no", frames, "")}).text()
        assert left_out in text and ("more frame" in text) == bool(left_out)


def test_of_more_failures_than_are_told_the_tracebacks_say_more() -> None:
    failures = {rank: Failure(f"Error{rank}", "", FRAMES, "") for rank in range(6)}
    assert not tell(AXES, range(8), failures).is_whole
    assert tell(AXES, range(8), dict.fromkeys(range(6), BOOM)).is_whole
    assert tell(AXES, range(8), {}, {rank: f"died {rank}" for rank in range(8)}).is_whole


def test_where_nobody_can_ask_for_them_the_tracebacks_stand_above() -> None:
    inner = Frame("/lib/json/decoder.py", 353, "raw_decode", "scan(s)", False)
    story = tell(AXES, [0], {0: Failure("ValueError", "loss is nan", (*FRAMES, inner), "")})
    story = replace(story, tracebacks="\x1b[1mdp=0\x1b[0m\nTraceback …", shows_tracebacks=True)
    assert story.text().startswith("dp=0\nTraceback …\n\n✗ 1 of 1 rank failed\n")
    assert story.body().startswith("dp=0\nTraceback …\n\ndp=0,tp=0  ValueError: loss is nan\n")
    assert story.text(ansi=True).startswith("\x1b[1mdp=0\x1b[0m\nTraceback …\n\n")
    whole = replace(tell(AXES, [0], {0: BOOM}), tracebacks="Traceback …", shows_tracebacks=True)
    assert "Traceback …" not in whole.text() + whole.body(), "it says no more than the story"


def test_tracebacks_are_told_once_for_ranks_at_one_place() -> None:
    failures = {rank: Failure("ValueError", f"loss {rank}", FRAMES, f"Traceback\nloss {rank}") for rank in range(4)}
    failures[7] = Failure("KeyError", "'x'", (), "")
    told = without_escapes(in_full(AXES, failures))
    assert told == "dp=0,tp=0-3 ×4, as rank 0 tells it\nTraceback\nloss 0\n\ndp=1,tp=3\nKeyError: 'x'"
    many = {rank: Failure(f"Error{rank}", "", (), "") for rank in range(12)}
    assert in_full({"r": 12}, many).endswith("\n\n… and 4 more of the kind")


def test_many_messages_that_differ_in_their_numbers_alone_are_one() -> None:
    losses = {rank: 99.5 if rank == 5 else 2 + rank / 8 for rank in range(8)}
    failures = {rank: Failure("ValueError", f"loss {loss} is too high", FRAMES, "") for rank, loss in losses.items()}
    [chapter] = tell(AXES, range(8), failures).chapters
    assert chapter.messages == ("loss 2.0…2.875 is too high", "loss 99.5 is too high")
    few = {rank: failures[rank] for rank in range(3)}
    assert len(tell(AXES, range(8), few).chapters[0].messages) == 3


@pytest.mark.parametrize(
    ("ranks", "where"),
    [
        (range(0, 128, 3), "ranks 0-126:3"),
        ([rank for rank in range(128) if rank not in (5, 40, 78)], "ranks 0-4,6-39,41-77,79-127"),
        ([7 * i * i % 128 for i in range(40)], " points)"),
        (range(32, 64), "hosts=1,dp=0-31"),
    ],
)
def test_a_group_that_fills_many_blocks_is_told_by_number(ranks: Sequence[int], where: str) -> None:
    [chapter] = tell({"hosts": 4, "dp": 32}, range(128), dict.fromkeys(ranks, BOOM)).chapters
    assert chapter.where.endswith(where) and len(chapter.where) <= 60


def test_messages_that_differ_by_chance_are_one() -> None:
    said = ["closed by peer [127.0.0.1]:17", "<Thing at 0x7f01a2b3c4>", "closed by peer [127.0.0.1]:4"]
    failures = {rank: Failure("RuntimeError", message, FRAMES, "") for rank, message in enumerate(said)}
    [chapter] = tell(AXES, range(8), failures).chapters
    assert (chapter.messages, chapter.num_messages) == (tuple(said[:2]), 2)


def test_different_failures_are_different_chapters_and_not_too_many() -> None:
    failures = {rank: Failure(f"Error{rank}", "", FRAMES, "") for rank in range(8)}
    story = tell(AXES, range(8), failures)
    assert [chapter.type_name for chapter in story.chapters] == [f"Error{rank}" for rank in range(5)]
    assert story.num_more == 3 and "… and 3 more" in story.text()


def test_what_explains_it_stands_below_everybodys_fate() -> None:
    notes = ["rank 7 has issued none", "b", "c", "d", "e"]
    story = tell(AXES, range(8), {7: BOOM}, waiting={1: "waited"}, notes=notes[:4])
    above = ["◌ dp=0,tp=1  waited", "≠ rank 7 has issued none", "≠ b", "≠ c"]
    assert story.text().splitlines()[-6:-1] == [*above, "≠ and 1 more place where ranks part"]
    assert story.hints[-1].command == "%mesh ledger"
    assert "≠ and 2 more places where" in tell(AXES, range(8), {7: BOOM}, notes=notes).text()
    assert "more place" not in tell(AXES, range(8), {7: BOOM}, notes=notes[:3]).text()


@pytest.mark.parametrize(
    ("message", "num_told"),
    [("no grad for rank {0}: 2 3", 1), ("expected what rank {1} has", 2), ("rank 1{0} is late", 2)],
)
def test_messages_that_differ_in_the_number_of_their_own_rank_are_told_once(message: str, num_told: int) -> None:
    failures = {rank: Failure("RuntimeError", message.format(rank, 1 - rank), (), "") for rank in (0, 1)}
    messages = tell({"dp": 2}, range(2), failures).chapters[0].messages
    assert messages == tuple(each.message for each in failures.values())[:num_told]


def test_very_many_deaths_that_differ_in_their_numbers_alone_are_one() -> None:
    lost = {rank: f"rank {rank} (pid {rank + 70}) exited with code 3" for rank in range(8)}
    last = {rank: [f"out of memory on {rank}"] if rank else ["out of luck"] for rank in lost}
    first, others = tell(AXES, range(8), {}, lost, last_lines=last).fates
    assert (first.num_ranks, first.text, first.last_lines) == (1, lost[0], ("out of luck",))
    assert (others.num_ranks, others.text) == (7, "rank 1…7 (pid 71…77) exited with code 3")
    assert others.last_lines == ("out of memory on 1…7",)
    few = {rank: lost[rank] for rank in range(6)}
    assert len(tell(AXES, range(8), {}, few, last_lines=last).fates) == 6


def test_a_dead_rank_has_its_last_words() -> None:
    story = tell(AXES, range(8), {}, {3: "died: SIGSEGV, pid 9"}, last_lines={3: ["\x1b[31mFatal\x1b[0m"]})
    assert story.headline == "1 of 8 ranks lost"
    assert "✗ dp=0,tp=3  died: SIGSEGV, pid 9\n     Fatal" in story.text()
    assert [hint.command for hint in story.hints] == ["%mesh restart @dead", "%mesh logs 3"]


def test_a_rank_that_was_given_up_is_not_lost() -> None:
    lost = {1: "died: SIGSEGV, pid 9", 3: "rank 3 had not begun it, and still works on cell 4"}
    assert tell(AXES, range(8), {}, lost, dead=[1], late=[3]).headline == "1 of 8 ranks lost, 1 not done"
    assert tell(AXES, range(8), {}, {3: lost[3]}, dead=[], late=[3]).headline == "1 of 8 ranks not done"


def test_a_rank_that_lives_and_could_not_tell_its_outcome_has_failed() -> None:
    story = tell(AXES, range(8), {7: BOOM}, {1: "died: SIGSEGV, pid 9", 3: "rank 3 failed: DecodeError"}, unclear={3})
    assert story.headline == "2 of 8 ranks failed, 1 lost"


def test_an_error_inside_a_library_shows_my_line_and_names_the_library() -> None:
    inside = Frame("/opt/lib/site-packages/torch/nn/modules/functional.py", 2289, "linear", "...", False)
    story = tell(AXES, range(8), {0: Failure("RuntimeError", "shapes", (FRAMES[0], inside), "")})
    assert "raised in …/modules/functional.py, line 2289, in linear" in story.text()
    assert "→ 2289" not in story.text()


@pytest.mark.parametrize("depth", [3, 60])
def test_a_deep_recursion_is_shortened_in_the_middle(depth: int) -> None:
    frames = tuple(Frame("cell 1", line, "f", "f()", True) for line in range(depth))
    text = tell(AXES, range(8), {0: Failure("RecursionError", "", frames, "")}).text()
    assert ("… 54 more frames" in text) == (depth == 60)
    assert f"→ {depth - 1}  f()" in text and len(text.splitlines()) < 20


def test_the_caret_of_a_syntax_error_stands_below_what_it_means() -> None:
    frame = Frame("cell 1", 12, "<module>", "   x = 1\n   ^", True)
    lines = tell(AXES, range(8), {0: Failure("IndentationError", "", (frame,), "")}).text().splitlines()
    assert lines[3:5] == ["   → 12     x = 1", "            ^"]


def test_a_message_of_several_lines_is_indented() -> None:
    failures = {0: Failure("ValueError", "bad\nin batch 3", FRAMES, ""), 1: Failure("ValueError", "a\nb", FRAMES, "")}
    lines = tell(AXES, range(8), failures).text().splitlines()
    assert lines[1:5] == ["dp=0,tp=0-1 ×2  ValueError: bad", "     in batch 3", "  also: a", "     b"]


def test_where_ipython_refuses_a_magic_is_of_no_use() -> None:
    frames = (Frame("cell 1", 2, "", "%nosuch", True), Frame("interactiveshell.py", 9, "run_line_magic", "", False))
    for name, told in (("UsageError", False), ("ValueError", True)):
        assert ("raised in" in tell(AXES, [0], {0: Failure(name, "not found", frames, "")}).text()) is told


def test_nothing_is_to_be_looked_into_where_nothing_ran() -> None:
    wrong = Failure("SyntaxError", "invalid syntax (cell 5, line 2)", (), "")
    assert tell({"tp": 2}, range(2), dict.fromkeys(range(2), wrong)).hints == ()
    mixed = {0: wrong, 1: Failure("ValueError", "no", (), "")}
    assert [hint.purpose for hint in tell({"tp": 2}, range(2), mixed).hints] == ["look inside", "run again on it alone"]


@pytest.mark.parametrize(("ranks", "again"), [(range(4), "%%on_mesh"), ((2, 3), "%%on_mesh 2-3")])
def test_where_others_waited_for_the_one_that_failed_all_are_to_run_it_again(ranks: Sequence[int], again: str) -> None:
    failure = Failure("ValueError", "boom", (), "")
    story = tell({"dp": 2, "tp": 2}, ranks, {3: failure}, waiting={2: "was at cell 5 line 4; interrupted after 2 s"})
    assert story.text().splitlines()[-1] == f"look inside: %mesh debug --pm   run it again on all: {again}"
