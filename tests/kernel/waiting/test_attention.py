"""A look that comes too late, by which silence is no sign."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.waiting.attention import Attention


@given(st.lists(st.floats(0.0, 3.0), max_size=30))
def test_no_more_than_every_other_look_is_late(gaps: list[float]) -> None:
    attention, now = Attention(1.0, 0.0), 0.0
    missed = [attention.missed(now := now + gap) for gap in gaps]
    assert not any(one and other for one, other in itertools.pairwise(missed))
    assert all(not late or gap > 0.99 for gap, late in zip(gaps, missed, strict=True))


def test_the_first_look_is_never_late() -> None:
    assert Attention(1.0).missed(50.0) == 0.0
    assert Attention(1.0, now=0.0).missed(50.0) == 50.0
