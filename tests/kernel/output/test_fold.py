"""Folding: no line lost, none told twice, every rank's order kept, and little said where much was printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from meshbook.kernel.output.fold import FoldedGap, LineFolder
from meshbook.kernel.output.lines import LINE_CAP, Stream
from meshbook.kernel.output.weave import FoldedLine
from meshbook.runtime.ranges import ranks_text

Feed = tuple[int, Stream, str]
STREAMS: tuple[Stream, Stream] = ("stdout", "stderr")
PIECES = st.text(alphabet="ab\r\n", max_size=12)
FEEDS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(STREAMS), PIECES), max_size=30)
WORDS = st.lists(st.sampled_from(["step", "warn", "", "done"]), max_size=12)


def run(feeds: Iterable[Feed], ranks: Sequence[int], poll: int = 1, **options: float) -> list[FoldedLine | FoldedGap]:
    """Feed one piece every 10 ms, poll after every `poll`-th, and finish."""
    folder = LineFolder(ranks, **options)  # type: ignore[arg-type]
    told: list[FoldedLine | FoldedGap] = []
    now = 0.0
    for count, (rank, stream, text) in enumerate(feeds):
        now = count / 100
        folder.feed(rank, stream, text, now)
        if count % poll == 0:
            told += folder.poll(now)
    return told + folder.finish(now)


def lines_of(told: Iterable[FoldedLine | FoldedGap], rank: int) -> list[tuple[Stream, str]]:
    return [(x.stream, x.text) for x in told if isinstance(x, FoldedLine) and rank in x.ranks]


def terminal(feeds: Iterable[Feed], rank: int) -> list[tuple[Stream, str]]:
    """The slow reference: what one rank's lines are, a character at a time."""
    lines: list[tuple[Stream, str]] = []
    state: dict[Stream, tuple[str, bool]] = {"stdout": ("", False), "stderr": ("", False)}
    for _, stream, text in (feed for feed in feeds if feed[0] == rank):
        for char in text:
            line, has_returned = state[stream]
            if char == "\n":
                lines.append((stream, line))
                state[stream] = ("", False)
            elif char == "\r":
                state[stream] = (line, True)
            else:
                state[stream] = (char if has_returned else line + char, False)
    return lines + [(stream, line) for stream, (line, _) in state.items() if line.strip()]


def text_of(lines: Iterable[FoldedLine | FoldedGap]) -> list[tuple[str, str]]:
    return [(ranks_text(x.ranks), x.text) if isinstance(x, FoldedLine) else ("gap", str(x.lines)) for x in lines]


@given(FEEDS, st.integers(1, 5), st.sampled_from([0.0, 0.05, 9.0]))
def test_every_rank_says_exactly_its_lines_in_its_order(feeds: list[Feed], poll: int, window: float) -> None:
    told = run(feeds, [0, 1, 2], poll, window=window)
    for rank in range(3):
        assert lines_of(told, rank) == terminal(feeds, rank)


@given(FEEDS, st.integers(0, 60))
def test_over_budget_the_gap_counts_every_line_that_is_not_shown(feeds: list[Feed], budget: int) -> None:
    told = run(feeds, [0, 1, 2], budget=budget)
    shown = sum(len(x.ranks) for x in told if isinstance(x, FoldedLine))
    hidden = sum(x.lines for x in told if isinstance(x, FoldedGap))
    assert shown + hidden == sum(len(terminal(feeds, rank)) for rank in range(3))
    assert sum(len(x.text) + 1 for x in told if isinstance(x, FoldedLine)) <= max(budget, 9)


@given(FEEDS, st.integers(0, 60))
@example([(0, "stdout", "a" * 10 + "\n"), (0, "stdout", "a"), (0, "stdout", "aaa\ra")], 15)  # cut, and cut again
def test_over_budget_a_rank_shows_its_first_and_its_last_lines(feeds: list[Feed], budget: int) -> None:
    feeds = [(rank, "stdout", text) for rank, _, text in feeds]
    told = run(feeds, [0, 1, 2], budget=budget)
    gap = next((i for i, x in enumerate(told) if isinstance(x, FoldedGap)), 0)
    for rank in range(3):
        said, head, tail = terminal(feeds, rank), lines_of(told[:gap], rank), lines_of(told[gap:], rank)
        assert said[: len(head)] == head
        for (_, line), (_, whole) in zip(reversed(tail), reversed(said), strict=False):
            assert line == whole or (line.startswith("… ") and whole.endswith(line[2:]))


@given(st.lists(WORDS, min_size=2, max_size=3))
def test_lines_are_told_at_least_once_and_folded_when_all_agree(words: list[list[str]]) -> None:
    ranks = range(len(words))
    told = run([(rank, "stdout", "".join(w + "\n" for w in words[rank])) for rank in ranks], ranks, poll=100)
    if all(said == words[0] for said in words):
        assert text_of(told) == [(ranks_text(ranks), word) for word in words[0]]
    assert len(told) >= max(len(said) for said in words)


@given(WORDS, st.lists(st.integers(1, 9), min_size=1), st.integers(0, 2))
def test_how_the_text_was_cut_into_pieces_does_not_matter(words: list[str], cuts: list[int], slow: int) -> None:
    text = "".join(word + "\n" for word in words)
    folder = LineFolder([0, 1, 2])
    for rank in {0, 1, 2} - {slow}:
        folder.feed(rank, "stdout", text, 0.0)
    position = 0
    for cut in [*cuts, len(text)]:
        folder.feed(slow, "stdout", text[position : position + cut], 0.01)
        position += cut
    assert text_of(folder.poll(0.02)) == [("0-2", word) for word in words]


def test_a_line_that_all_have_said_does_not_wait() -> None:
    folder = LineFolder([0, 1])
    folder.feed(0, "stdout", "a\nb\n", 0.0)
    assert folder.poll(0.01) == []
    folder.feed(1, "stdout", "a\n", 0.02)
    assert text_of(folder.poll(0.02)) == [("0-1", "a")]
    assert text_of(folder.poll(0.049)) == []
    assert text_of(folder.poll(0.05)) == [("0", "b")]


def test_an_extra_line_of_one_rank_does_not_tear_the_others_apart() -> None:
    folder = LineFolder(range(8))
    for rank in range(8):
        warning = "UserWarning: lr_scheduler\n" if rank == 7 else ""
        folder.feed(rank, "stdout", f"step 0\n{warning}step 1\n", 0.0)
    told = [("0-7", "step 0"), ("7", "UserWarning: lr_scheduler"), ("0-7", "step 1")]
    assert text_of(folder.poll(0.0)) + text_of(folder.poll(0.05)) == told


def test_rows_of_a_tensor_that_several_ranks_print_stay_together_beside_another() -> None:
    folder = LineFolder(range(3))
    for rank, number in ((0, 1), (1, 7), (2, 1)):
        folder.feed(rank, "stdout", f"tensor([[{number}.],\n        [{number}.]])\nstep\n", 0.0)
    assert [(line.ranks, line.text) for line in folder.poll(1.0)] == [
        ((0, 2), "tensor([[1.],"),
        ((0, 2), "        [1.]])"),
        ((1,), "tensor([[7.],"),
        ((1,), "        [7.]])"),
        ((0, 1, 2), "step"),
    ]


def test_rows_of_a_tensor_stay_together_and_lines_alternate() -> None:
    said: list[Feed] = [
        (rank, "stdout", f"tensor([[{rank}.],\n        [{rank}.]])\nloss {rank}\nstep {rank}\n") for rank in (0, 1)
    ]
    told = [("0", "tensor([[0.],"), ("0", "        [0.]])"), ("1", "tensor([[1.],"), ("1", "        [1.]])")]
    told += [("0", "loss 0"), ("1", "loss 1"), ("0", "step 0"), ("1", "step 1")]
    assert text_of(run(said, [0, 1], poll=9)) == told


def test_orders_that_contradict_each_other_are_both_kept() -> None:
    told = run([(0, "stdout", "a\nb\n"), (1, "stdout", "b\na\n")], [0, 1], poll=9)
    assert text_of(told) == [("0", "a"), ("0-1", "b"), ("1", "a")]


def test_the_same_text_on_two_streams_is_two_lines() -> None:
    told = run([(0, "stdout", "a\n"), (1, "stderr", "a\n")], [0, 1])
    assert [(x.ranks, x.stream) for x in told if isinstance(x, FoldedLine)] == [
        ((0,), "stdout"),
        ((1,), "stderr"),
    ]


def test_a_progress_bar_is_one_line() -> None:
    folder = LineFolder([0, 1])
    for percent in range(0, 100, 10):
        for rank in (0, 1):
            folder.feed(rank, "stderr", f"\r{percent}%", percent / 1000)
    assert folder.poll(0.1) == []
    assert folder.unfinished(0.1) == {(0, "stderr"): "90%", (1, "stderr"): "90%"}
    folder.feed(1, "stderr", "\r100%", 0.2)
    folder.feed(0, "stderr", "\r100%\n", 0.2)
    assert folder.unfinished(0.2) == {(1, "stderr"): "100%"}
    assert text_of(folder.finish(0.2)) == [("0-1", "100%")]


def test_an_erased_progress_bar_leaves_nothing() -> None:
    assert run([(0, "stderr", "\r50%"), (0, "stderr", "\r   \r")], [0]) == []


def test_windows_line_ends_are_line_ends() -> None:
    assert text_of(run([(0, "stdout", "a\r"), (0, "stdout", "\nb\r\n")], [0])) == [("0", "a"), ("0", "b")]


def test_a_line_is_called_unfinished_when_it_is_old_and_all_before_it_was_told() -> None:
    folder = LineFolder([0, 1])
    folder.feed(1, "stdout", "before\nname? ", 0.0)
    assert folder.unfinished(0.31) == {}
    folder.poll(0.06)
    assert folder.unfinished(0.29) == {}
    assert folder.unfinished(0.31) == {(1, "stdout"): "name? "}
    assert folder.finish(0.4) == [FoldedLine((1,), "stdout", "name? ")]


def test_a_flood_is_told_as_first_lines_a_gap_and_last_lines_folded() -> None:
    folder = LineFolder(range(4), budget=3_000)
    text = "".join(f"line {number}\n" for number in range(10_000))
    told: list[FoldedLine | FoldedGap] = []
    for start in range(0, len(text), 1_000):
        for rank in range(4):
            folder.feed(rank, "stdout", text[start : start + 1_000], start / 1e6)
        told += folder.poll(start / 1e6)
    assert folder.is_full
    told += folder.finish(9.0)
    shown = text_of(told)
    assert shown[0] == ("0-3", "line 0") and shown[-1] == ("0-3", "line 9999")
    gap = next(x for x in told if isinstance(x, FoldedGap))
    assert gap.lines == 4 * (10_000 - (len(told) - 1))
    assert 2_500 < sum(len(line) + 1 for ranks, line in shown if ranks != "gap") <= 3_000
    assert all(ranks in ("0-3", "gap") for ranks, _ in shown)


def test_over_budget_a_quiet_rank_still_has_the_last_word() -> None:
    folder = LineFolder([0, 1], budget=3_000)
    folder.feed(0, "stdout", "noise\n" * 5_000, 0.0)
    folder.poll(1.0)
    folder.feed(1, "stdout", "loss is nan\n", 1.0)
    folder.feed(0, "stdout", "noise\n" * 5_000, 2.0)
    assert ("1", "loss is nan") in text_of(folder.finish(3.0))


def test_a_line_without_end_is_held_by_its_two_ends() -> None:
    folder = LineFolder([0], budget=1_000_000)
    for _ in range(100):
        folder.feed(0, "stdout", "x" * 10_000, 0.0)
    folder.feed(0, "stdout", "end\n", 0.0)
    [line] = folder.poll(0.0)
    assert "[a line of 1,000,003 characters]" in line.text and line.text.endswith("xend")
    assert len(line.text) < LINE_CAP + 100


@pytest.mark.parametrize("pieces", [1, 7])
def test_equal_long_lines_fold_however_they_came(pieces: int) -> None:
    text = "y" * 700_000 + "\n"
    size = len(text) // pieces
    feeds: list[Feed] = [(1, "stdout", text[i : i + size]) for i in range(0, len(text), size)]
    told = run([(0, "stdout", text), *feeds], [0, 1], window=9.0, budget=10**7)
    assert [ranks for ranks, _ in text_of(told)] == ["0-1"]


def test_ranks_that_are_not_of_the_run_are_refused() -> None:
    with pytest.raises(KeyError):
        LineFolder([0]).feed(1, "stdout", "a\n", 0.0)


def test_what_ranks_log_alike_is_told_once_with_the_time_of_the_first() -> None:
    feeds: list[Feed] = [
        (0, "stderr", "[rank0]:W1124 09:17:40.758000 16072 x.py:390] slow\n"),
        (1, "stderr", "[rank1]:W1124 09:17:40.759000 16073 x.py:390] slow\n"),
        (1, "stdout", "09:17:41 nan\n"),
        (0, "stdout", "09:17:41 step\n09:17:42 step\n"),
        (1, "stdout", "09:17:43 step\n"),
        (1, "stderr", "[rank1]:W1124 09:17:44.000000 16073 x.py:391] more\n"),
    ]
    assert text_of(run(feeds, [0, 1])) == [
        ("0-1", "W1124 09:17:40.758000 16072 x.py:390] slow"),
        ("1", "09:17:41 nan"),
        ("0-1", "09:17:41 step"),
        ("0", "09:17:42 step"),
        ("1", "[rank1]:W1124 09:17:44.000000 16073 x.py:391] more"),
    ]
