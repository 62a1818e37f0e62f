"""Answers that wait for each other: all arrive, in order for each rank, together where they can, and soon."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshbook.runtime.engines.bundles import HOLD, Bundles, Parcel, may_wait
from meshbook.runtime.wire.lane import INLINE
from meshbook.runtime.wire.messages import Answer, Note, Reply

RANKS = range(4)


def opened(parcels: list[Parcel]) -> list[tuple[int, int, bytes, float, bool]]:
    """The answers in parcels: rank, call, body, seconds, whether the rank has talked."""
    found: list[tuple[int, int, bytes, float, bool]] = []
    for replies, bodies in parcels:
        columns = (replies.ranks, replies.bodies, replies.seconds, replies.talked)
        for rank, body, seconds, talked in zip(*columns, strict=True):
            found.append((rank, replies.seq, bodies[body], seconds, talked))
    return found


def test_the_answers_of_a_host_go_as_one_with_equal_ones_folded():
    bundles = Bundles(7)
    bundles.expect(1, RANKS)
    for rank in (2, 0, 3):
        assert bundles.hold(rank, Reply(1, seconds=rank / 10), b"same", 0.0) == []
    (parcel,) = bundles.hold(1, Reply(1, seconds=0.1, talked=True), b"other", 0.0)
    assert (parcel.replies.crew, parcel.bodies, parcel.replies.bodies) == (7, [b"same", b"other"], (0, 0, 0, 1))
    assert opened([parcel])[-2:] == [(3, 1, b"same", 0.3, False), (1, 1, b"other", 0.1, True)]
    assert bundles.since is None


def test_an_answer_that_nobody_else_owes_goes_at_once():
    bundles = Bundles(1)
    bundles.expect(1, [2])
    assert len(bundles.hold(2, Reply(1), b"", 0.0)) == 1
    assert len(bundles.hold(3, Reply(99), b"", 0.0)) == 1  # of a call that nobody has told of


def test_who_is_slow_holds_others_back_for_a_moment_only():
    bundles = Bundles(1)
    bundles.expect(1, RANKS)
    bundles.hold(0, Reply(1), b"0", 10.0)
    bundles.hold(1, Reply(1), b"1", 10.0 + HOLD / 2)
    assert bundles.tire(10.0 + HOLD * 0.9) == []
    assert bundles.since == 10.0
    assert [rank for rank, *_ in opened(bundles.tire(10.0 + HOLD))] == [0, 1]
    assert bundles.hold(2, Reply(1), b"2", 20.0) == []
    assert [rank for rank, *_ in opened(bundles.hold(3, Reply(1), b"3", 20.0))] == [2, 3]


def test_what_does_not_wait_goes_after_the_answers_of_its_rank_and_before_those_of_others():
    bundles = Bundles(1)
    bundles.expect(1, RANKS)
    bundles.expect(2, [0])
    bundles.hold(0, Reply(1), b"0", 0.0)
    assert bundles.before(1) == []
    assert [rank for rank, *_ in opened(bundles.before(0))] == [0]


def test_an_error_or_an_end_is_waited_for_no_more():
    bundles = Bundles(1)
    bundles.expect(1, RANKS)
    bundles.hold(0, Reply(1), b"0", 0.0)
    bundles.hold(1, Reply(1), b"1", 0.0)
    assert bundles.settle(2, 1) == []
    assert [rank for rank, *_ in opened(bundles.leave(3))] == [0, 1]
    bundles.expect(2, RANKS)  # one is dead: the others do not wait for it
    assert [bundles.hold(rank, Reply(2), b"", 0.0) for rank in (0, 1)] == [[], []]
    assert len(bundles.hold(2, Reply(2), b"", 0.0)) == 1
    bundles.welcome([3])
    bundles.expect(3, [2, 3])
    assert bundles.hold(2, Reply(3), b"", 0.0) == []


def test_calls_that_overtake_each_other_keep_their_order_on_each_rank():
    bundles = Bundles(1)
    for seq in (1, 2, 3):
        bundles.expect(seq, [0, 1, 2])
    for rank, seq in ((0, 1), (1, 2), (1, 1), (0, 2), (0, 3), (1, 3)):  # rank 1 answers its second call first
        assert bundles.hold(rank, Reply(seq), b"", 0.0) == []
    sent = opened(bundles.hold(2, Reply(3), b"", 0.0))
    assert [seq for rank, seq, *_ in sent if rank == 0] == [1, 2, 3]
    assert [seq for rank, seq, *_ in sent if rank == 1] == [2, 1, 3]


def test_calls_that_follow_each_other_are_one_message_each():
    bundles = Bundles(1)
    sent: list[Parcel] = []
    for seq in range(1, 9):
        bundles.expect(seq, RANKS)
    for seq in range(1, 9):
        sent += bundles.hold(0, Reply(seq), b"", 0.0)  # far ahead of the others
    for seq in range(1, 9):
        for rank in (1, 2, 3):
            sent += bundles.hold(rank, Reply(seq), b"", 0.0)
    assert [(replies.seq, len(replies.ranks)) for replies, _ in sent] == [(seq, 4) for seq in range(1, 9)]


def test_what_may_wait():
    assert may_wait(Reply(1), [bytearray(INLINE)])
    assert not may_wait(Reply(1), [bytearray(INLINE + 1)])
    assert not may_wait(Reply(1), [bytearray(1), bytearray(1)])
    assert not may_wait(Reply(1, ok=False), [bytearray(1)])
    assert not may_wait(Answer(1), [bytearray(1)])
    assert not may_wait(Note(1, "display"), [bytearray(1)])


ranks = st.sampled_from(RANKS)
calls = st.integers(1, 4)
events = st.one_of(
    st.tuples(st.just("expect"), calls, st.just({*RANKS})),
    st.tuples(st.just("answer"), calls, ranks),
    st.tuples(st.just("answer"), calls, ranks),
    st.tuples(st.just("answer"), calls, ranks),
    st.tuples(st.just("fail"), calls, ranks),
    st.tuples(st.just("say"), st.just(0), ranks),
    st.tuples(st.just("end"), st.just(0), ranks),
    st.tuples(st.just("wait"), st.integers(1, 9), st.just(0)),
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.lists(events, max_size=60))
def test_what_goes_in_comes_out_in_the_order_of_each_rank(told: list[Any]):
    bundles, now = Bundles(1), 0.0
    for call in range(1, 5):
        bundles.expect(call, RANKS)
    said: dict[int, list[Any]] = {rank: [] for rank in RANKS}
    heard: dict[int, list[Any]] = {rank: [] for rank in RANKS}
    times: dict[int, float] = {}  # of each event, when it was

    def send(parcels: list[Parcel]) -> None:
        for rank, seq, body, seconds, _ in opened(parcels):
            heard[rank].append((seq, body, seconds))

    for number, (kind, what, who) in enumerate(told):
        times[number] = now
        if kind == "expect":
            bundles.expect(what, who)
        elif kind == "answer":
            item = (what, b"%d" % (number % 3), float(number))
            said[who].append(item)
            send(bundles.hold(who, Reply(what, seconds=item[2]), item[1], now))
        elif kind == "wait":
            now += what * HOLD / 4
            send(bundles.tire(now))
            late = [said[rank][len(heard[rank])] for rank in RANKS if len(said[rank]) > len(heard[rank])]
            assert all(times[int(item[2])] + HOLD > now for item in late)
        else:
            send(bundles.leave(who) if kind == "end" else bundles.before(who))
            assert heard[who] == said[who], f"a rank's {kind} has overtaken its answers"
            said[who].append(kind)
            heard[who].append(kind)
            if kind == "fail":
                send(bundles.settle(who, what))
    send(bundles.tire(now + HOLD))
    assert heard == said
    assert bundles.since is None


def test_ranks_with_other_numbers_owe_what_they_owed_and_what_waits_goes_out_by_the_old_ones():
    bundles = Bundles(1)
    bundles.expect(7, [2, 3])
    bundles.leave(1)
    assert bundles.hold(2, Reply(7), b"x", 0.0) == []
    assert [parcel.replies.ranks for parcel in bundles.renumber({2: 4, 3: 5})] == [(2,)]
    bundles.expect(8, [1, 4])
    assert bundles.hold(4, Reply(8), b"y", 0.0) == [], "rank 1 of now is not the one that has ended"
    assert [parcel.replies.seq for parcel in bundles.hold(5, Reply(7), b"x", 0.0)] == [8, 7]
