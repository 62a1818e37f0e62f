"""What is left of text that erases lines and moves the cursor up, however it is cut into pieces."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.output.lines import Cutter

HIDE, SHOW, ERASE, UP = "\x1b[?25l", "\x1b[?25h", "\x1b[2K", "\x1b[1A"


def rich_frames(*frames: str) -> str:
    """Text as rich's `Live` writes it: each frame is drawn over the one before."""
    return HIDE + "".join(_redrawn(frames)) + f"\n{SHOW}"


def _redrawn(frames: tuple[str, ...]) -> Iterator[str]:
    height = 1
    for frame in frames:
        yield f"\r{ERASE}" + f"{UP}{ERASE}" * (height - 1) + frame
        height = frame.rpartition("printed\n")[2].count("\n") + 1  # what is printed goes above, and stays


RICH = rich_frames("a 0%", "a 0%\nb 0%", "a 50%\nb 0%", "printed\na 50%\nb 50%\nc 0%", "a 100%\nb 90%\nc 0%")
NESTED = "".join(
    [
        *("\router 0%\n\rmiddle 0%\x1b[A", "\n\n\rinner 0%\x1b[A\x1b[A", "\n\n\rinner 9%\x1b[A\x1b[A"),
        *("\n\rmiddle 9%\x1b[A", "\router 9%"),
    ]
)


def lines_of(text: str, cuts: list[int]) -> list[str]:
    """The lines that are told of a text that comes in pieces."""
    cutter = Cutter()
    edges = sorted({0, len(text), *(cut % len(text) for cut in cuts)})
    lines = [line for begin, end in pairwise(edges) for line in cutter.cut("stdout", text[begin:end])]
    return [line[1:] for line in [*lines, *cutter.rest()]]


@given(st.lists(st.integers(0, 10_000)))
def test_the_last_frame_of_rich_is_left_and_what_was_printed_above_it(cuts: list[int]) -> None:
    assert lines_of(f"before\n{RICH}after\n", cuts) == ["before", "printed", "a 100%", "b 90%", "c 0%", "after"]


@given(st.lists(st.integers(0, 10_000)))
def test_a_spinner_that_erases_itself_leaves_nothing(cuts: list[int]) -> None:
    spinner = f"{HIDE}\r{ERASE}- working\r{ERASE}/ working\r{ERASE}{SHOW}"
    assert lines_of(f"{spinner}done\n{spinner}{rich_frames('x', 'y')}", cuts) == ["done", "y"]


def test_three_bars_in_each_other_are_drawn_together() -> None:
    cutter = Cutter()
    told = cutter.cut("stderr", NESTED)
    assert (told, cutter.open["stderr"].text()) == ([], "outer 9%\nmiddle 9%\ninner 9%")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("old\r\x1b[Knew\n", "new"),
        ("remote: done\x1b[K\n", "remote: done"),
        ("old\x1b[2K\rnew\n", "new"),
        ("gone\r\x1b[K\n", ""),
        ("\x1b[31mred\x1b[0m\n", "\x1b[31mred\x1b[0m"),
        ("a\nb\x1b[2Kc\nd\r\x1b[Ke\n", "a c e"),
    ],
)
def test_erased_text_is_gone_and_colours_stay(text: str, left: str) -> None:
    for at in range(1, len(text)):
        assert " ".join(lines_of(text, [at])) == left, at


def test_rows_below_a_hidden_cursor_are_told_as_more_come() -> None:
    cutter = Cutter()
    told = cutter.cut("stdout", HIDE + "".join(f"{number}\n" for number in range(1_000)))
    assert told[0] == "o0"
    assert len(told) == 900
    assert lines_of(HIDE + "".join(f"{number}\n" for number in range(1_000)), [7]) == [*map(str, range(1_000))]
