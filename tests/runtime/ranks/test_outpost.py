"""The node of a rank: links to other ranks that the controller stands in for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from meshbook.runtime.ranks.outpost import Outpost
from meshbook.runtime.ranks.place import Place
from meshbook.runtime.wire.inproc import InprocLink
from meshbook.runtime.wire.lane import Lane
from meshbook.runtime.wire.messages import Died, Peer
from meshbook.runtime.wire.reactor import Reactor


@pytest.fixture
def outpost() -> Iterator[Outpost]:
    ours, theirs = InprocLink.make()
    reactor = Reactor()
    place = Place(0, 2, 0, {"rank": 2}, "cpu")
    streams: Any = None
    yield Outpost(7, place, reactor, Lane(ours), None, streams)
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
