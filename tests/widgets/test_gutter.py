from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meshbook.runtime.ranges import ranks_text
from meshbook.widgets.gutter import gutter


def test_a_short_list_is_whole() -> None:
    assert gutter([3]) == "3" and gutter(range(1000)) == "0-999" and gutter(range(0, 64, 3)) == "0-63:3"


@given(st.sets(st.integers(0, 4000), min_size=1))
def test_it_has_little_room_and_counts_all(ranks: set[int]) -> None:
    text = gutter(ranks)
    assert len(text) <= 32
    if text != ranks_text(ranks):
        shown, _, count = text.partition(",… ")
        assert ranks_text(ranks).startswith(f"{shown},") and count == f"({len(ranks):,} ranks)"
