"""Facts as bytes: what is packed is read again, and a delta makes the new frame of the old one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.dashboard.facts import STATES, Gpu, RankFacts, counts
from meshbook.kernel.dashboard.frames import CHANGE, MEMORY_STEP, RECORD, apply, delta, half, pack, unpack, whole

SHARES = st.none() | st.floats(0, 1)
FACTS = st.builds(
    RankFacts,
    rank=st.just(0),
    state=st.sampled_from(STATES),
    cpu=SHARES,
    memory=st.none() | st.integers(0, 200 << 30),
    gpu=st.none() | st.builds(Gpu, st.floats(0, 1), st.integers(0, 200 << 30), st.just(80 << 30), st.integers(0, 100)),
    done=st.integers(0, 100),
    total=st.integers(-1, 100),
    metric=st.none() | st.floats(allow_nan=True, allow_infinity=True),
)


@given(st.lists(FACTS, max_size=20))
def test_what_is_packed_is_read_again_up_to_its_precision(facts: list[RankFacts]) -> None:
    frame = pack(facts)
    assert len(frame) == RECORD.size * len(facts)
    for one, cell in zip(facts, unpack(frame), strict=True):
        assert cell.state == one.state
        for share, read in ((one.cpu, cell.cpu), (one.progress, cell.progress), (one.gpu and one.gpu.busy, cell.gpu)):
            assert (share is None) == (read is None)
            assert share is None or read == pytest.approx(share, abs=0.01)
        assert (one.memory is None) == (cell.memory is None)
        assert one.memory is None or cell.memory is None or 0 <= one.memory - cell.memory < MEMORY_STEP
        assert (one.metric is None) == (cell.metric is None)


@given(st.floats(allow_nan=False))
def test_a_metric_keeps_its_first_digits(value: float) -> None:
    read = whole(half(value))
    if 1e-30 < abs(value) < 1e38:
        assert read == pytest.approx(value, rel=0.01)
    elif abs(value) > 3.5e38:
        assert read == math.copysign(math.inf, value)


@given(st.lists(st.tuples(FACTS, FACTS, st.booleans()), min_size=1, max_size=20))
def test_a_delta_makes_the_new_frame_of_the_old_one(pairs: list[tuple[RankFacts, RankFacts, bool]]) -> None:
    old = pack([before for before, *_ in pairs])
    new = pack([after if is_changed else before for before, after, is_changed in pairs])
    changes = delta(old, new)
    assert changes is None or (apply(old, changes) == new and len(changes) < max(len(new), 1))


def test_a_delta_is_left_out_where_it_is_no_shorter() -> None:
    old, new = pack([RankFacts(0), RankFacts(1)]), pack([RankFacts(0, "busy"), RankFacts(1, "busy")])
    assert delta(old, new) is None
    assert delta(old, old) == b""
    assert delta(old, pack([RankFacts(0)])) is None  # a mesh of another size


def test_a_thousand_ranks_are_ten_kilobytes() -> None:
    frame = pack([RankFacts(rank) for rank in range(1024)])
    assert len(frame) == 10_240 and CHANGE.size == 12


def test_states_are_counted_in_the_order_of_their_list() -> None:
    assert list(counts([RankFacts(0, "dead"), RankFacts(1, "busy"), RankFacts(2, "busy")]).items()) == [
        ("busy", 2),
        ("dead", 1),
    ]
