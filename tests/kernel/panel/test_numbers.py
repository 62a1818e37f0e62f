"""What the client is told by one number is one thing, and numbers of the notebook's own debugger stay as they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.panel.numbers import FIRST, NOTEBOOK, Kind, Numbers

KINDS: list[Kind] = ["thread", "frame", "variables"]
THINGS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(KINDS), st.integers(1, FIRST - 1)))


@given(THINGS)
def test_a_number_means_what_it_was_given_for(things: list[tuple[int, Kind, int]]) -> None:
    numbers = Numbers()
    given_ = {thing: numbers.given(*thing) for thing in things}
    for (adapter, kind, number), told in given_.items():
        assert numbers.meant(kind, told) == (adapter, number)
        assert told == numbers.given(adapter, kind, number) < 2**53
        assert told == number if adapter == NOTEBOOK else told >= FIRST
    of_ranks = [told for (adapter, _, _), told in given_.items() if adapter != NOTEBOOK]
    assert len(of_ranks) == len(set(of_ranks))


@given(THINGS, st.integers(1, 3))
def test_what_is_forgotten_means_nothing_and_is_not_given_again(things: list[tuple[int, Kind, int]], gone: int) -> None:
    numbers = Numbers()
    before = {thing: numbers.given(*thing) for thing in things}
    numbers.forget(gone, ("frame", "variables"))
    for (adapter, kind, number), told in before.items():
        if adapter == gone and kind != "thread":
            with pytest.raises(LookupError, match="has gone on"):
                numbers.meant(kind, told)
            assert numbers.given(adapter, kind, number) not in before.values()
        else:
            assert numbers.meant(kind, told) == (adapter, number)


def test_a_number_of_another_kind_is_refused_and_nothing_stays_nothing() -> None:
    numbers = Numbers()
    with pytest.raises(LookupError):
        numbers.meant("frame", numbers.given(1, "thread", 1))
    assert numbers.given(1, "variables", 0) == 0
