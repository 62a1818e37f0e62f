"""Long messages of errors at a glance."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.failures.abridged import abridged


@given(st.lists(st.text("ab\u00e9 ", max_size=3_000), max_size=60), st.integers(0, 40))
def test_of_a_long_message_both_ends_are_told(lines: list[str], num_short: int) -> None:
    message = "\n".join(["beginning", *lines, *map(str, range(num_short)), "end"])
    told = abridged(message)
    assert told.startswith("beginning") and told.endswith("end")
    assert len(told) <= 4_000 and told.count("\n") <= 24
    assert (told == message) == (" more " not in told)
    if len(message) <= 500 and message.count("\n") < 24:
        assert told == message


def test_a_line_without_end_keeps_its_two() -> None:
    told = abridged("begin" + "x" * 9_000 + "end")
    assert told.startswith("beginx") and told.endswith("xend") and " … 8,008 more characters … " in told
    assert len(told) < 1_100


def test_a_message_that_fits_is_itself() -> None:
    for message in ("", "no", "a\nb", "\n".join(map(str, range(24)))):
        assert abridged(message) == message
    assert "… 1 more line …" in abridged("\n".join(map(str, range(25))))
