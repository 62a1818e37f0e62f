"""Who is stopped, and who has the focus: whatever comes in whatever order, nobody who waits is forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from meshbook.kernel.debug.events import Stop, Went, decode
from meshbook.kernel.debug.stops import Stops, key_of
from meshbook.runtime.wire.unicode import packed


def stop(rank: int, talk: int = 1, turn: int = 1, out: str = "") -> Stop:
    return Stop(rank, talk, turn, "live", "ipdb> ", out)


def test_the_first_to_stop_has_the_focus_and_keeps_it_over_a_step() -> None:
    stops = Stops()
    stops.take(stop(2))
    stops.take(stop(0))
    first = stops.next()
    assert first is not None and first.rank == 2
    stops.answered(first)
    assert stops.focused() is None  # on its way: the others are held
    stops.take(stop(2, turn=2))
    assert stops.next() == stop(2, turn=2)


def test_the_focus_moves_on_when_its_rank_does_not_come_back() -> None:
    stops = Stops()
    stops.take(stop(2))
    stops.take(stop(1))
    stops.answered(stop(2))
    stops.take(Went(2, 1))
    assert stops.next() == stop(1)


def test_who_works_on_a_line_or_steps_is_known_until_it_asks_again_or_goes_on() -> None:
    stops = Stops()
    for rank in (0, 1, 2):
        stops.take(stop(rank))
        stops.answered(stop(rank))
    stops.take(Went(0, 1, steps=True))
    stops.take(stop(1, turn=2))
    assert stops.working == {(0, 1), (2, 1)}
    stops.take(Went(0, 1))
    stops.drop([2])
    assert not stops.working


def test_who_reads_is_not_disturbed_by_what_comes() -> None:
    stops = Stops()
    for rank in (0, 1):
        stops.take(stop(rank))
    for rank, talk in stops.waiting:
        stops.take(stop(rank + 2))
        stops.take(Went(rank, talk))
    assert stops.ranks == (2, 3)


def test_an_older_question_does_not_replace_a_newer() -> None:
    stops = Stops()
    stops.take(stop(0, turn=3))
    stops.take(stop(0, turn=2))
    assert stops.next() == stop(0, turn=3)


def test_a_question_that_was_left_is_not_asked_when_it_comes() -> None:
    """Its rank stopped as the user left all, and has answered it itself."""
    stops = Stops()
    stops.take(stop(0))
    stops.leave({(0, 1): 1, (1, 3): 2})
    stops.take(stop(1, talk=3, turn=2))
    assert not stops.waiting and stops.next() is None
    stops.take(stop(1, talk=4))
    assert stops.ranks == (1,), "another conversation"
    stops.take(Went(1, 3))
    assert stops.left == {(0, 1): 1}
    stops.renew(0)
    stops.take(stop(0))
    assert stops.ranks == (0, 1), "a new process has a first conversation again"


def test_after_that_it_may_ask_again() -> None:
    stops = Stops()
    stops.leave({(0, 1): 1})
    stops.take(Went(0, 1))
    stops.take(stop(0, turn=2))
    assert stops.ranks == (0,)


def test_two_threads_of_a_rank_are_two_conversations() -> None:
    stops = Stops()
    stops.take(stop(0, talk=1))
    stops.take(stop(0, talk=2))
    assert len(stops.waiting) == 2 and stops.ranks == (0,)


def test_a_rank_that_is_chosen_again_speaks_for_its_next_thread() -> None:
    stops = Stops()
    for rank, talk in ((0, 1), (0, 2), (1, 1)):
        stops.take(stop(rank, talk))
    assert [stops.choose(rank) for rank in (1, 0, 0, 0)] == [stop(1), stop(0, 1), stop(0, 2), stop(0, 1)]
    assert stops.choose(7) is None and stops.next() == stop(0, 1)


def test_ranks_that_are_gone_have_no_focus() -> None:
    stops = Stops()
    for rank in (0, 1):
        stops.take(stop(rank))
    stops.choose(1)
    assert stops.drop([1]) == [stop(1)]
    assert stops.focus is None and stops.next() == stop(0)
    assert stops.drop([1]) == [] and stops.focused() == stop(0)


def test_who_has_been_heard_waits_on_in_silence() -> None:
    stops = Stops()
    stops.take(stop(0, out="> here"))
    stops.mute(stop(0, out="> here"))
    assert stops.next() == stop(0)


STOPS = st.builds(stop, st.integers(0, 99), st.integers(1, 9), st.integers(1, 9), st.text())
WENTS = st.builds(Went, st.integers(0, 9), st.integers(1, 9), st.text(), st.booleans())


@given(STOPS | WENTS)
def test_events_survive_the_wire(event: Stop | Went) -> None:
    assert decode(packed(event)) == event


class Floor(RuleBasedStateMachine):
    """Ranks stop, are answered, go on and die in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.stops = Stops()
        self.waiting: dict[tuple[int, int], Stop] = {}
        self.turns: dict[tuple[int, int], int] = {}

    @rule(rank=st.integers(0, 3), talk=st.integers(1, 2))
    def stops_here(self, rank: int, talk: int) -> None:
        turn = self.turns[rank, talk] = self.turns.get((rank, talk), 0) + 1
        self.waiting[rank, talk] = stop(rank, talk, turn)
        self.stops.take(self.waiting[rank, talk])

    @precondition(lambda self: self.waiting)
    @rule()
    def is_answered(self) -> None:
        found = self.stops.next()
        assert found is not None
        self.stops.answered(found)
        del self.waiting[key_of(found)]

    @rule(rank=st.integers(0, 3), talk=st.integers(1, 2))
    def goes_on(self, rank: int, talk: int) -> None:
        self.stops.take(Went(rank, talk))
        self.waiting.pop((rank, talk), None)

    @rule(rank=st.integers(0, 3))
    def dies(self, rank: int) -> None:
        gone = self.stops.drop([rank])
        assert {key_of(each) for each in gone} == {key for key in self.waiting if key[0] == rank}
        self.waiting = {key: each for key, each in self.waiting.items() if key[0] != rank}

    @rule(rank=st.integers(0, 3))
    def is_chosen(self, rank: int) -> None:
        found = self.stops.choose(rank)
        assert (found is not None) == any(key[0] == rank for key in self.waiting)
        if found is not None:
            assert self.stops.next() == found

    @invariant()
    def nobody_is_forgotten(self) -> None:
        assert self.stops.waiting == self.waiting
        assert (self.stops.next() is not None) == bool(self.waiting)


TestFloor = Floor.TestCase
