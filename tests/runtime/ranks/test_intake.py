"""Who reads the control lane of a rank: its control thread, or the thread of the actor that was called twice."""

from __future__ import annotations

import random
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from queue import SimpleQueue
from typing import Any, ClassVar

import pytest

from meshbook.runtime.errors import LinkClosed
from meshbook.runtime.ranks.intake import Received, Shared
from meshbook.runtime.wire import codec
from meshbook.runtime.wire.lane import Frames, Lane, pack
from meshbook.runtime.wire.link import PairLink
from meshbook.runtime.wire.messages import Ask, Call, StopActor

pytestmark = pytest.mark.skipif(not hasattr(select, "EPOLLEXCLUSIVE"), reason="Linux has it")

LONG = 20
"""Seconds after which what should have come is missing."""


class Rank:
    """A control thread and actors that note on which thread what was read by whom."""

    stays_awake: ClassVar[bool] = False

    def __init__(self) -> None:
        near, far = PairLink.make()
        self.near, self.lane = Lane(near), Lane(PairLink(far))
        self.intake = Shared(self.lane, self._on_call, stays_awake=self.stays_awake)
        self.heeded: SimpleQueue[Received | None] = SimpleQueue()
        self.read_by: dict[int, str] = {}
        """By the number of the call: the name of the thread that took it off the lane."""
        self.actors: dict[int, Resident] = {}
        self._control = threading.Thread(target=self._answer, name="control")

    def start(self, *actors: int) -> Rank:
        for actor in actors:
            self.actors[actor] = Resident(self.intake, actor)
        self._control.start()
        return self

    def call(self, actor: int, seq: int) -> None:
        self.near.send(Call(seq, actor, "work"), codec.encode(None))

    def _on_call(self, call: Call, frames: Frames) -> None:
        self.read_by[call.seq] = threading.current_thread().name
        self.actors[call.actor].jobs.put(call.seq)

    def _answer(self) -> None:
        try:
            while True:
                self.heeded.put(self.intake.next())
        except LinkClosed:
            self.heeded.put(None)

    def close(self) -> None:
        for actor in self.actors.values():
            actor.jobs.put(None)
            actor.thread.join()
        self.near.close()
        self._control.join()
        self.lane.close()
        self.intake.close()


@pytest.fixture(autouse=True, params=[False, True], ids=["asleep", "awake"])
def _waiting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How an actor that reads waits."""
    monkeypatch.setattr(Rank, "stays_awake", request.param)


class Resident:
    """An actor: `work` is what it does with a call."""

    def __init__(self, intake: Shared, number: int) -> None:
        self.jobs = intake.jobs(number)
        self.done: SimpleQueue[int] = SimpleQueue()
        self.work: Callable[[int], object] = lambda seq: None
        self.thread = threading.Thread(target=self._run, name=f"actor {number}")
        self.thread.start()

    def _run(self) -> None:
        while (seq := self.jobs.get()) is not None:
            self.work(seq)
            self.done.put(seq)


@contextmanager
def rank_of(*actors: int) -> Iterator[Rank]:
    with closing(Rank().start(*actors)) as rank:
        yield rank


def done(rank: Rank, actor: int, count: int) -> list[int]:
    return [rank.actors[actor].done.get(timeout=LONG) for _ in range(count)]


def test_an_actor_that_is_called_again_reads_its_calls_itself() -> None:
    with rank_of(1) as rank:
        for seq in range(6):
            rank.call(1, seq)
            assert done(rank, 1, 1) == [seq]
        readers = [rank.read_by[seq] for seq in range(6)]
        assert readers[:2] == ["control", "control"] and "actor 1" in readers[2:]


def test_the_control_thread_hears_all_that_is_no_call() -> None:
    with rank_of(1) as rank:
        for seq in range(20):
            rank.call(1, seq)
            rank.near.send(Ask(100 + seq, 0, "survey"), codec.encode(None))
        assert done(rank, 1, 20) == list(range(20))
        heard = [rank.heeded.get(timeout=LONG) for _ in range(20)]
        assert [each[0].seq for each in heard if each is not None and isinstance(each[0], Ask)] == list(range(100, 120))


def test_while_the_reader_works_the_control_thread_answers_and_keeps_its_calls() -> None:
    go_on = threading.Event()
    with rank_of(1, 2) as rank:
        for seq in range(3):
            rank.call(1, seq)
        done(rank, 1, 3)
        assert rank.intake.reader is rank.actors[1].jobs
        rank.actors[1].work = lambda seq: go_on.wait(LONG)
        rank.call(1, 3)
        rank.near.send(Ask(7, 0, "survey"), codec.encode(None))
        heard = rank.heeded.get(timeout=LONG)
        assert heard is not None and heard[0] == Ask(7, 0, "survey")
        rank.call(1, 4)
        rank.call(2, 5)
        assert done(rank, 2, 1) == [5], "another actor waits for the one at work"
        go_on.set()
        assert done(rank, 1, 2) == [3, 4]


def test_what_ends_an_actor_is_heeded_before_what_comes_after() -> None:
    with rank_of(1) as rank:
        for seq in range(3):
            rank.call(1, seq)
        done(rank, 1, 3)
        rank.near.send(StopActor(9, 1, "enough"))
        heard = rank.heeded.get(timeout=LONG)
        assert heard is not None and heard[0] == StopActor(9, 1, "enough")
        assert rank.intake.reader is None
        rank.call(1, 4)
        assert done(rank, 1, 1) == [4] and rank.read_by[4] == "control"


def test_something_from_elsewhere_reaches_the_reader_while_it_waits() -> None:
    with rank_of(1) as rank:
        for seq in range(3):
            rank.call(1, seq)
        done(rank, 1, 3)
        rank.actors[1].jobs.put(50)  # of another rank: it comes over a link of its own
        assert done(rank, 1, 1) == [50]


def test_calls_that_share_a_datagram_all_arrive_in_order() -> None:
    with rank_of(1, 2) as rank:
        for first in range(0, 300, 10):
            calls = [pack(Call(seq, 1 + seq % 2, "work"), codec.encode(None))[0] for seq in range(first, first + 10)]
            rank.near.send_parts([b"".join(calls)])
        assert done(rank, 2, 150) == list(range(1, 300, 2))
        assert done(rank, 1, 150) == list(range(0, 300, 2))


def test_the_control_thread_is_told_that_the_controller_is_gone_though_an_actor_reads() -> None:
    with rank_of(1) as rank:
        for seq in range(3):
            rank.call(1, seq)
        done(rank, 1, 3)
        rank.near.close()
        assert rank.heeded.get(timeout=LONG) is None


def test_an_actor_that_ends_does_not_close_the_bell_that_somebody_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread may have found the last item by itself, and be gone before the one who put it there rings."""
    with rank_of() as rank:
        jobs: Any = rank.intake.jobs(1)
        jobs.put(1)
        jobs.wait()  # returns, as there is something
        ring, thread = jobs._desk.ring, threading.Thread(target=jobs.close)

        def late() -> None:
            thread.start()
            thread.join(0.05)
            ring()

        monkeypatch.setattr(jobs._desk, "ring", late)
        jobs.is_waiting = True
        jobs.put(None)
        thread.join(LONG)
        assert not thread.is_alive()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_no_message_is_left_lying(seed: int) -> None:
    """Random bursts to three actors, of which one is in the middle of something now and then."""
    chance = random.Random(seed)
    with rank_of(1, 2, 3) as rank:
        sent: dict[int, list[int]] = {1: [], 2: [], 3: []}
        seq = 0
        for _ in range(400):
            favourite = chance.choice([1, 1, 1, 2, 3])
            for _ in range(chance.choice([1, 1, 1, 2, 30])):
                actor = favourite if chance.random() < 0.9 else chance.choice([1, 2, 3])
                seq += 1
                sent[actor].append(seq)
                rank.call(actor, seq)
            if chance.random() < 0.1:
                rank.near.send(StopActor(seq, 9, "nobody"))
                heard = rank.heeded.get(timeout=LONG)
                assert heard is not None and heard[0] == StopActor(seq, 9, "nobody")
            if chance.random() < 0.5:  # all is quiet, so the next message must wake somebody
                for number, numbers in sent.items():
                    assert done(rank, number, len(numbers)) == numbers
                    numbers.clear()
        for number, numbers in sent.items():
            assert done(rank, number, len(numbers)) == numbers
