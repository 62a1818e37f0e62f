"""The node of a rank: links to other ranks that the controller stands in for."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from meshbook.runtime.ranks.outpost import Outpost
from meshbook.runtime.ranks.place import Place
from meshbook.runtime.supervision import MeshFailure
from meshbook.runtime.wire import codec
from meshbook.runtime.wire.inproc import InprocLink
from meshbook.runtime.wire.lane import Lane
from meshbook.runtime.wire.link import PairLink
from meshbook.runtime.wire.messages import Call, Connect, Died, Forwarded, Peer
from meshbook.runtime.wire.pool import Pool
from meshbook.runtime.wire.reactor import Reactor


@pytest.fixture
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    pool = Pool(getattr(request, "param", None))
    yield pool
    pool.close()


@pytest.fixture
def control() -> Iterator[tuple[Lane, Lane]]:
    ours, theirs = InprocLink.make()
    yield Lane(ours), Lane(theirs)
    ours.close()
    theirs.close()


@pytest.fixture
def outpost(pool: Pool, control: tuple[Lane, Lane]) -> Iterator[Outpost]:
    reactor = Reactor()
    place = Place(0, 2, 0, {"rank": 2}, "cpu")
    streams: Any = None
    yield Outpost(7, place, reactor, control[0], pool, streams)
    reactor.close()


@pytest.fixture
def root(control: tuple[Lane, Lane], outpost: Outpost) -> Lane:
    """The controller's end of the control lane."""
    return control[1]


def test_ranks_that_ask_for_each_other_at_once_have_one_way(outpost: Outpost, until: Callable[..., Any]) -> None:
    """The controller answers each of them, and both of them each time: nothing of it stays when one is gone."""
    before = len(os.listdir("/dev/fd"))
    for _ in range(2):
        outpost.on_control(Peer(7, 1), [], [])
    outpost.on_control(Died(7, 1, "it was killed"), [], [])
    until(lambda: len(os.listdir("/dev/fd")) == before)


def test_of_ranks_that_are_gone_nothing_stays(outpost: Outpost, until: Callable[..., Any]) -> None:
    for mesh in range(10, 15):  # a loop that brings a mesh up at each step
        link, theirs = InprocLink.make()
        outpost.meet((mesh, 0), link)
        outpost.on_control(Died(mesh, 0, "it was stopped"), [], [])
        theirs.close()
    until(lambda: not outpost._met)


def test_what_is_said_waits_until_the_other_rank_has_its_end_of_the_link(outpost: Outpost, root: Lane) -> None:
    """It may have had no descriptor left for it: the controller hands on then."""
    outpost.send_away((7, 1), Call(1, 1, "work"), codec.encode("first"))
    assert root.recv()[0] == Connect(7, 1)
    link, theirs = InprocLink.make()
    far = Lane(theirs)
    outpost.meet((7, 1), link)
    assert far.recv()[0] == Peer(7, 0, has_link=True)
    outpost.send_away((7, 1), Call(2, 1, "work"), codec.encode("second"))
    assert far.recv_nowait() is None
    far.close()
    outpost.on_control(Peer(7, 1), [], [])
    assert [root.recv()[0] for _ in range(2)] == [Forwarded(7, 1)] * 2


def test_what_was_said_first_comes_first_over_a_link(outpost: Outpost, root: Lane) -> None:
    outpost.send_away((7, 1), Call(1, 1, "work"), codec.encode("first"))
    link, theirs = InprocLink.make()
    far = Lane(theirs)
    outpost.meet((7, 1), link)
    far.send(Peer(7, 1, has_link=True))
    assert [far.recv()[0] for _ in range(2)] == [Peer(7, 0, has_link=True), Call(1, 1, "work")]
    outpost.send_away((7, 1), Call(2, 1, "work"), codec.encode("second"))
    assert far.recv()[0] == Call(2, 1, "work")
    outpost.reactor.schedule(outpost.hang_up)
    outpost.reactor.let_finish()
    far.close()


@pytest.mark.parametrize("pool", [4096], indirect=True)
def test_what_waited_comes_also_where_there_is_no_room_for_it(outpost: Outpost, root: Lane) -> None:
    outpost.send_away((7, 1), Call(1, 1, "work"), codec.encode(b"1" * 100_000))
    link, theirs = PairLink.make()
    far = Lane(PairLink(theirs))
    outpost.meet((7, 1), link)
    far.send(Peer(7, 1, has_link=True))
    assert far.recv()[0] == Peer(7, 0, has_link=True)
    _, frames = far.recv()
    assert codec.decode(frames[0], frames[1:]) == b"1" * 100_000
    outpost.reactor.schedule(outpost.hang_up)
    outpost.reactor.let_finish()
    far.close()


def test_an_end_of_a_link_that_did_not_come_through_is_told(outpost: Outpost, root: Lane) -> None:
    outpost.on_control(Peer(7, 1, has_link=True), [], [])
    assert root.recv()[0] == Connect(7, 1, is_direct=False)


def test_a_link_to_a_rank_that_is_gone_is_no_way_to_the_one_in_its_place(outpost: Outpost, root: Lane) -> None:
    link, theirs = InprocLink.make()
    far = Lane(theirs)
    outpost.meet((7, 1), link)
    outpost.on_control(Died(7, 1, "it was killed"), [], [])
    far.send(Peer(7, 1, has_link=True))
    outpost.reactor.let_finish()
    outpost.send_away((7, 1), Call(1, 1, "work"), codec.encode("new"))
    assert root.recv()[0] == Connect(7, 1)
    outpost.reactor.schedule(outpost.hang_up)
    outpost.reactor.let_finish()
    far.close()


def test_a_failure_without_an_owner_is_none_of_what_the_program_prints(outpost: Outpost, capsys: Any) -> None:
    outpost.unhandled(MeshFailure("workers", [0], "it raised"))
    out, err = capsys.readouterr()
    assert out == "" and "a failure without an owner" in err and "it raised" in err


@pytest.mark.skipif(not Pool.available(), reason="needs memfds")
def test_large_values_come_over_each_of_two_links(outpost: Outpost, pool: Pool) -> None:
    """Two ranks that ask for each other at once may have two: calls go over one, answers to calls over the other."""
    pairs = [PairLink.make() for _ in range(2)]
    far = [Lane(PairLink(theirs)) for _, theirs in pairs]
    for (link, _), lane in zip(pairs, far, strict=True):
        outpost._join((7, 1), link).send(Call(1, 1, "work"), codec.encode(b"1" * 100_000))
        _, frames = lane.recv()
        assert codec.decode(frames[0], frames[1:]) == b"1" * 100_000
    outpost.on_control(Died(7, 1, "it has another number", is_fault=False), [], [])
    assert pool.stats().blocks == 2
    outpost.on_control(Died(7, 1, "it was killed", has_ended=True), [], [])
    assert pool.stats().blocks == 0
    outpost.reactor.schedule(outpost.hang_up)
    outpost.reactor.let_finish()
    for lane in far:
        lane.close()


class Interrupting(PairLink):
    """Inside of its first send something else is sent, as a `__del__` may that the garbage collector runs there."""

    inside: Callable[[], object] | None = None

    def send_nowait(self, *args: Any, **kwargs: Any) -> bool:
        inside, self.inside = self.inside, None
        if inside is not None:
            inside()
        return super().send_nowait(*args, **kwargs)


def test_what_a_finalizer_sends_inside_of_a_send_goes_after_it(outpost: Outpost) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link, far = Interrupting(ours), Lane(PairLink(theirs))
    for number in (1, 2):
        outpost.send_away((7, 1), Call(number, 1, "work"), codec.encode(None))  # waits for a way
    outpost.meet((7, 1), link)
    link.inside = lambda: outpost.send_away((7, 1), Call(3, 1, "release"), codec.encode(None))
    far.send(Peer(7, 1, has_link=True))  # on which the loop sends what has waited
    sent = [message for message in (far.recv()[0] for _ in range(4)) if isinstance(message, Call)]
    assert [call.endpoint for call in sent] == ["work", "work", "release"]
    outpost.reactor.schedule(outpost.hang_up)
    outpost.reactor.let_finish()
    far.close()
