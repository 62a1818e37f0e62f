"""What is typed at the prompt: ours begins with %, all else is pdb's."""

from __future__ import annotations

import pytest

from meshbook.kernel.debug.words import Abort, Cast, Focus, Help, Line, Quit, Who, Word, WordError, read


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("p x", Line("p x")),
        ("  if x: y  ", Line("  if x: y  ")),
        ("", Line("")),
        ("q", Quit()),
        ("quit", Quit()),
        ("exit ", Quit()),
        ("query", Line("query")),
        ("%who", Who()),
        ("%abort", Abort()),
        ("%help", Help()),
        ("%rank 3", Focus("3")),
        ("%rank dp=1,tp=0", Focus("dp=1,tp=0")),
        ("%cast dp=1 p x.shape", Cast("dp=1", "p x.shape")),
        ("%cast all n", Cast("", "n")),
        ("%all n", Cast("", "n")),
        ("%table loss * 2", Cast("", "%table loss * 2")),
    ],
)
def test_a_line_and_what_it_means(typed: str, meant: Word) -> None:
    assert read(typed) == meant


@pytest.mark.parametrize("typed", ["%", "%rank", "%cast dp=1", "%cast", "%all", "%table", "%who 3", "%frob x"])
def test_a_mistake_names_what_there_is(typed: str) -> None:
    with pytest.raises(WordError, match=r"is no command of the debugger\n.*\n.*%rank 3"):
        read(typed)
