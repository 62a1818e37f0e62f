"""Pieces of a segment that are taken and given back in any order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meshbook.runtime.wire.extents import Extents


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 30)), max_size=60))
def test_extents_never_overlap_and_nothing_gets_lost(steps: list[tuple[bool, int]]) -> None:
    free = Extents(100)
    taken: dict[int, int] = {}
    for is_take, size in steps:
        if is_take or not taken:
            offset = free.take(size)
            if offset is not None:
                assert all(offset + size <= o or o + s <= offset for o, s in taken.items())
                taken[offset] = size
            else:
                assert all(hole < size for _, hole in free.holes())
        else:
            offset = list(taken)[size % len(taken)]
            free.give(offset, taken.pop(offset))
        assert free.used == sum(taken.values())
    for offset, size in taken.items():
        free.give(offset, size)
    assert free.holes() == [(0, 100)]
