"""What the loop is told of zmq links that share one socket. What all kinds of links have in common: `test_link`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from meshbook.runtime.wire.link import NearLink
from meshbook.runtime.wire.reactor import Reactor
from meshbook.runtime.wire.zmq_hub import ZmqHub
from meshbook.runtime.wire.zmq_link import ZmqLink


def test_a_callback_that_raises_does_not_silence_other_ranks(
    monkeypatch: pytest.MonkeyPatch, until: Callable[..., Any]
):
    reported: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    reactor = Reactor()
    hub = ZmqHub(reactor)
    heard: list[bytes] = []

    def heed(near: NearLink) -> None:
        while (datagram := near.recv_nowait()) is not None:
            heard.append(bytes(datagram[0]))
            raise ValueError("one answer is too much")

    fars: list[ZmqLink] = []
    for near, end in [hub.open() for _ in range(4)]:
        assert end.address is not None
        near.watch(reactor, partial(heed, near))
        fars.append(ZmqLink(end.address))
    for turn in range(1, 11):  # what comes in one turn of the loop is a matter of chance
        reactor.schedule(lambda: [far.send([b"answer"]) for far in fars])
        until(lambda turn=turn: len(heard) == 4 * turn, 5)
    assert {report.exc_type for report in reported} == {ValueError}
    for far in fars:
        far.close()
    hub.close()
    reactor.close()
