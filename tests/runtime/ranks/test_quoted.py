"""What is read of the traceback of another process."""

from __future__ import annotations

import traceback
from multiprocessing import pool
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from meshbook.runtime.ranks.failure import describe
from meshbook.runtime.ranks.quoted import Quoted, quoted_in


def raised(depth: int, text: str) -> None:
    if depth:
        raised(depth - 1, text)
    raise ValueError(text)


@given(
    st.integers(0, 2),  # Python says deeper ones in short
    st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1),
    st.sampled_from(["", "Caught.\n"]),
)
def test_what_python_prints_is_read_as_it_was(depth: int, text: str, before: str) -> None:
    try:
        raised(depth, text)
    except ValueError as error:
        printed, frames = traceback.format_exc(), list(traceback.walk_tb(error.__traceback__))
    told = quoted_in(before + printed)
    assert told is not None
    assert told.message == f"ValueError: {text}"
    assert [line for _, line, _ in told.places] == [line for _, line in frames]
    assert {Path(file).name for file, _, _ in told.places} == {Path(__file__).name}


def test_the_last_of_several_tracebacks_counts_and_what_is_none_is_none() -> None:
    one = 'Traceback (most recent call last):\n  File "a", line 1, in f\nKeyError: 1\n'
    two = one.partition("  ")[0]
    two += '  File "b", line 2, in g\n    g()\n  [Previous line repeated 9 more times]\nE: x\ny'
    assert quoted_in(f"{one}\nDuring handling of the above exception:\n\n{two}") == Quoted(
        "E: x\ny", [("b", 2, "g")], False
    )
    assert quoted_in(f'\n"""\n{one}"""') == Quoted("KeyError: 1", [("a", 1, "f")], False)
    for text in (
        "",
        "no",
        "Traceback (most recent call last):\n",
        'Traceback (most recent call last):\n  File "a", line 1, in f',
    ):
        assert quoted_in(text) is None


def test_of_a_pool_the_text_of_its_traceback_is_kept() -> None:
    """It is a cause without frames: its text stood where ours begins, and was lost."""
    try:
        raised(0, "x")
    except ValueError as error:
        rebuild, sent = vars(pool)["ExceptionWithTraceback"](error, error.__traceback__).__reduce__()
    failure = describe(rebuild(*sent))
    assert failure.message == "x, in another process"
    assert failure.traceback.startswith("Traceback of where the remote call failed (most recent call last):\n")
    assert "in raised" in failure.traceback


def test_what_is_told_of_where_it_was_raised() -> None:
    """Users raise their own so, too: `raise RuntimeError(traceback.format_exc())`."""
    try:
        raised(0, "x")
    except ValueError:
        text = traceback.format_exc()
    assert describe(RuntimeError(text)).message == "ValueError: x"
    assert describe(ValueError(f"Caught ValueError in replica 0.\nOriginal {text}")).message == "x"
    assert describe(ValueError(f"Caught it in DataLoader worker process 0.\n{text}")).message == "x, in another process"
