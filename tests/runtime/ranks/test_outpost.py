"""The node of a rank: links to other ranks that the controller stands in for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from meshbook.runtime.ranks.outpost import Outpost
from meshbook.runtime.ranks.place import Place
from meshbook.runtime.wire import codec
from meshbook.runtime.wire.inproc import InprocLink
from meshbook.runtime.wire.lane import Lane
from meshbook.runtime.wire.link import PairLink
from meshbook.runtime.wire.messages import Call, Died, Peer
from meshbook.runtime.wire.pool import Pool
from meshbook.runtime.wire.reactor import Reactor


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool()
    yield pool
    pool.close()


@pytest.fixture
def outpost(pool: Pool) -> Iterator[Outpost]:
    ours, theirs = InprocLink.make()
    reactor = Reactor()
    place = Place(0, 2, 0, {"rank": 2}, "cpu")
    streams: Any = None
    yield Outpost(7, place, reactor, Lane(ours), pool, streams)
    reactor.close()
    ours.close()
    theirs.close()


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


@pytest.mark.skipif(not Pool.available(), reason="needs memfds")
def test_large_values_come_over_each_of_two_links(outpost: Outpost, pool: Pool) -> None:
    """Two ranks that ask for each other at once may have two: calls go over one, answers to calls over the other."""
    pairs = [PairLink.make() for _ in range(2)]
    far = [Lane(PairLink(theirs)) for _, theirs in pairs]
    for (link, _), lane in zip(pairs, far, strict=True):
        outpost._join((7, 1), link).send(Call(1, 1, "work"), codec.encode(b"1" * 100_000))
        _, frames = lane.recv()
        assert codec.decode(frames[0], frames[1:]) == b"1" * 100_000
    assert pool.stats().blocks == 2
    outpost.on_control(Died(7, 1, "it was killed"), [], [])
    assert pool.stats().blocks == 0
    outpost.reactor.schedule(outpost.hang_up)
    outpost.reactor.let_finish()
    for lane in far:
        lane.close()
