"""Outlets: what goes to a process that has plenty to do may share a datagram, and nothing overtakes anything."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from meshbook.runtime.wire import codec
from meshbook.runtime.wire.lane import Lane, pack
from meshbook.runtime.wire.link import PairLink
from meshbook.runtime.wire.messages import Call
from meshbook.runtime.wire.outlet import MOST_TOGETHER, Outlet
from meshbook.runtime.wire.pool import Pool
from meshbook.runtime.wire.reactor import Reactor


@dataclass
class Ends:
    """An outlet with a loop that does not turn by itself, and the other end of its lane."""

    outlet: Outlet
    far: Lane

    def post_soon(self, *numbers: int) -> None:
        for number in numbers:
            self.outlet.post_soon(pack(Call(number, 1, "work"), codec.encode((number, None))))

    def received(self) -> list[int]:
        """The numbers of all calls that have arrived."""
        found: list[int] = []
        while (received := self.far.recv_nowait()) is not None:
            message, frames = received
            assert isinstance(message, Call)
            assert codec.decode(frames[0], frames[1:])[0] == message.seq
            found.append(message.seq)
        return found


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    with closing(Reactor()) as reactor:
        yield reactor


@pytest.fixture
def ends(reactor: Reactor) -> Iterator[Ends]:
    near, far = PairLink.make()
    pool = Pool()
    with closing(Outlet(Lane(near, pool, "rank"), near, reactor)) as outlet, closing(Lane(PairLink(far))) as lane:
        yield Ends(outlet, lane)
    pool.close()


def stopped(reactor: Reactor) -> threading.Event:
    """Keeps the loop busy until the event is set, so that it flushes nothing."""
    go_on, is_stopped = threading.Event(), threading.Event()
    reactor.schedule(lambda: (is_stopped.set(), go_on.wait(20)))
    assert is_stopped.wait(20)
    return go_on


def test_messages_that_may_wait_go_when_the_loop_comes_round(ends: Ends, reactor: Reactor) -> None:
    go_on = stopped(reactor)
    ends.post_soon(1, 2, 3)
    assert ends.received() == []
    go_on.set()
    reactor.let_finish()
    assert ends.received() == [1, 2, 3]


def test_many_go_at_once_without_the_loop(ends: Ends, reactor: Reactor) -> None:
    go_on = stopped(reactor)
    ends.post_soon(*range(MOST_TOGETHER + 2))
    assert ends.received() == list(range(MOST_TOGETHER))
    go_on.set()
    reactor.let_finish()
    assert ends.received() == [MOST_TOGETHER, MOST_TOGETHER + 1]


def test_they_share_a_datagram(ends: Ends, reactor: Reactor) -> None:
    go_on = stopped(reactor)
    ends.post_soon(*range(MOST_TOGETHER))
    view, _ = ends.far.link.recv()
    assert bytes(view).count(b"work") == MOST_TOGETHER
    go_on.set()


def test_a_message_that_may_not_wait_takes_those_before_it_along(ends: Ends, reactor: Reactor) -> None:
    go_on = stopped(reactor)
    ends.post_soon(1, 2)
    ends.outlet.send(Call(3, 1, "work"), codec.encode((3, None)))
    assert ends.received() == [1, 2, 3]
    go_on.set()


def test_a_large_one_goes_at_once_and_in_its_place(ends: Ends, reactor: Reactor) -> None:
    go_on = stopped(reactor)
    ends.post_soon(1)
    ends.outlet.post_soon(pack(Call(2, 1, "work"), codec.encode((2, "x" * 4000))))
    ends.post_soon(3)
    assert ends.received() == [1, 2]
    go_on.set()
    reactor.let_finish()
    assert ends.received() == [3]


def test_what_waits_for_an_end_that_is_gone_is_dropped(ends: Ends, reactor: Reactor) -> None:
    go_on = stopped(reactor)
    ends.post_soon(1)
    ends.far.close()
    go_on.set()
    reactor.let_finish()
    ends.post_soon(2)
    ends.outlet.flush()
    assert not ends.outlet.backlog


def test_senders_on_many_threads_lose_nothing_and_keep_their_order(ends: Ends) -> None:
    def send(first: int) -> None:
        for number in range(first, first + 200):
            ends.post_soon(number)

    threads = [threading.Thread(target=send, args=(first,)) for first in (0, 1000, 2000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ends.outlet.flush()
    arrived = ends.received()
    for first in (0, 1000, 2000):
        assert [number for number in arrived if first <= number < first + 1000] == list(range(first, first + 200))


@pytest.mark.skipif(not Pool.available(), reason="needs memfds")
def test_what_was_packed_for_a_process_that_has_ended_meanwhile_takes_no_memory(ends: Ends) -> None:
    pool = ends.outlet.lane.pool
    assert pool is not None
    ends.far.close()
    pool.forget("rank")  # its end has been told
    ends.outlet.send(Call(1, 1, "work"), codec.encode(b"1" * 100_000))
    assert pool.stats().blocks == 0


class Interrupting(PairLink):
    """Inside of each send something else wants to send, as a `__del__` may that the garbage collector runs there."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.inside: list[Callable[[], object]] = []

    def send_nowait(self, *args: Any, **kwargs: Any) -> bool:
        while self.inside:
            self.inside.pop()()
        return super().send_nowait(*args, **kwargs)


def test_what_is_sent_inside_of_a_send_goes_after_it(reactor: Reactor) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    near = Interrupting(ours)
    with closing(Outlet(Lane(near), near, reactor)) as outlet, closing(Lane(PairLink(theirs))) as far:
        ends = Ends(outlet, far)
        near.inside.append(lambda: ends.post_soon(2))
        near.inside.append(lambda: outlet.send(Call(3, 1, "work"), codec.encode((3, None))))
        outlet.send(Call(1, 1, "work"), codec.encode((1, None)))
        reactor.let_finish()
        reactor.let_finish()  # of two that were to share a datagram
        assert sorted(ends.received()) == [1, 2, 3]
