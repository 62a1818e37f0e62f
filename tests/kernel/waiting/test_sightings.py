"""When ranks are asked where they are, and what is told of it."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.waiting.sightings import EVERY, FIRST, Sightings
from meshbook.runtime.wire import codec
from meshbook.runtime.wire.lane import Frames
from meshbook.runtime.wire.messages import Answer


def frames_of(value: object) -> Frames:
    return [memoryview(codec.encode(value).head)]


def test_a_place_is_told_with_its_age() -> None:
    now = [10.0]
    sightings = Sightings(started=0.0, num_ranks=2, clock=lambda: now[0])
    assert sightings.due(1.0, [0, 1]) == [0, 1]
    sightings.on_reply(0, Answer(1), frames_of("cell 3 line 2"))
    now[0] = 10.44
    assert sightings.last(0) == "last seen at cell 3 line 2 (0.4 s before)"
    assert sightings.last(1) == ""


def test_who_owes_an_answer_is_not_asked_again_and_who_is_nowhere_keeps_the_old_place() -> None:
    sightings = Sightings(started=0.0, num_ranks=2, clock=lambda: 0.0)
    assert sightings.due(1.0, [0, 1]) == [0, 1]
    sightings.on_reply(0, Answer(1), frames_of("cell 3 line 2"))
    assert sightings.due(2.0, [0, 1]) == [0]
    sightings.on_reply(0, Answer(2), frames_of(""))
    assert sightings.last(0).startswith("last seen at cell 3 line 2")


def test_places_are_counted() -> None:
    sightings = Sightings(started=0.0, num_ranks=1)
    assert sightings.places(0) == {}
    for place in ("cell 3 line 2", "cell 3 line 4, waiting in barrier", "cell 3 line 2"):
        sightings.on_reply(0, Answer(1), frames_of(place))
    assert sightings.places(0) == {"cell 3 line 2": 2, "cell 3 line 4, waiting in barrier": 1}


def test_for_how_long_a_rank_was_seen_at_one_place() -> None:
    now = [0.0]
    sightings = Sightings(started=0.0, num_ranks=2, clock=lambda: now[0])

    def see(when: float, place: str) -> None:
        now[0] = when
        if 0 in sightings.due(when, [0, 1]):
            sightings.on_reply(0, Answer(1), frames_of(place))

    assert sightings.still(0) == ("", 0.0)
    see(1.0, "cell 3 line 2")
    for second in range(2, 7):
        see(float(second), "cell 3 line 4")
    assert sightings.still(0) == ("cell 3 line 4", 4.0)
    assert sightings.still(1) == ("", 6.0)  # it has never answered
    see(60.0, "cell 3 line 4")  # nobody has asked meanwhile
    now[0] = 61.0
    assert sightings.still(0) == ("cell 3 line 4", 1.0)


def test_all_wait_where_each_was_seen_in_one_collective_for_so_long() -> None:
    now = [0.0]
    sightings = Sightings(started=0.0, num_ranks=2, clock=lambda: now[0])

    def see(when: float, *places: str) -> None:
        now[0] = when
        sightings.due(when, [0, 1])
        for rank, place in enumerate(places):
            sightings.on_reply(rank, Answer(1), frames_of(place))

    assert not sightings.are_waiting([0, 1], 0.5) and not sightings.are_waiting([], 0.5)
    see(1.0, "cell 3 line 2, waiting in all_reduce")
    see(2.0, "cell 3 line 2, waiting in all_reduce")
    assert sightings.are_waiting([0], 0.5) and not sightings.are_waiting([0, 1], 0.5), "rank 1 has not answered"
    see(3.0, "cell 3 line 2, waiting in all_reduce", "cell 3 line 2, waiting in all_gather")
    assert not sightings.are_waiting([0, 1], 0.5), "rank 1 was seen once"
    see(3.6, "cell 3 line 2, waiting in all_reduce", "cell 3 line 2, waiting in all_gather")
    assert sightings.are_waiting([0, 1], 0.5)
    see(4.2, "cell 3 line 2, waiting in all_reduce", "cell 3 line 3")
    assert not sightings.are_waiting([0, 1], 0.5)


@given(st.integers(1, 5000), st.lists(st.floats(0, 0.2), max_size=200))
def test_nobody_is_asked_too_early_or_too_often(num_ranks: int, steps: list[float]) -> None:
    sightings = Sightings(started=0.0, num_ranks=num_ranks)
    ranks = range(num_ranks)
    now, asked = 0.0, list[float]()
    for step in steps:
        now += step
        if due := sightings.due(now, ranks):
            assert due == [*ranks]
            asked.append(now)
            sightings._asked.clear()  # pyright: ignore[reportPrivateUsage] - all answer at once
    assert all(when >= FIRST for when in asked)
    assert all(later - sooner >= EVERY for sooner, later in itertools.pairwise(asked))
    assert len(asked) * num_ranks <= num_ranks + 50 * now + 1e-6
