"""How Ctrl-C in a cell is told."""

from __future__ import annotations

import pytest

from meshbook.kernel.failures.interrupted import Interrupted, told_in_one_line


def test_the_error_of_a_stopped_cell_is_one_line() -> None:
    error = Interrupted("interrupted: ranks 0-3 at cell 1 line 2")
    assert isinstance(error, KeyboardInterrupt)
    assert type(error).__name__ == "KeyboardInterrupt"
    assert error._render_traceback_() == [  # pyright: ignore[reportPrivateUsage] - what IPython calls
        "KeyboardInterrupt: interrupted: ranks 0-3 at cell 1 line 2"
    ]


def test_in_a_script_it_is_pythons_own() -> None:
    """Python ends by the signal for no other: a loop of the shell around the script would go on."""
    error = Interrupted("interrupted: rank 0 at train.py line 3")
    error.add_note("rank=1  ValueError: odd")
    plain = error.plain()
    assert type(plain) is KeyboardInterrupt
    assert (str(plain), plain.__notes__) == (str(error), ["rank=1  ValueError: odd"])


def test_what_is_told_better_inside_stays() -> None:
    with pytest.raises(Interrupted, match=r"^where it was$"), told_in_one_line("the cell was stopped"):
        raise Interrupted("where it was")
    with pytest.raises(Interrupted, match=r"^the cell was stopped$"), told_in_one_line("the cell was stopped"):
        raise KeyboardInterrupt
    with pytest.raises(ValueError, match=r"^odd$"), told_in_one_line("the cell was stopped"):
        raise ValueError("odd")
