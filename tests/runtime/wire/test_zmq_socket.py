"""A zmq socket that any thread may use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from meshbook.runtime.wire.zmq_socket import GuardedSocket


@pytest.fixture
def pair() -> Iterator[tuple[Any, Any]]:
    context = zmq.Context()
    near, far = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    near.bind("inproc://test")
    far.connect("inproc://test")
    yield near, far
    context.destroy(linger=0)


def test_what_is_sent_inside_of_a_send_goes_after_it(pair: tuple[Any, Any]):
    near, far = pair
    guarded = GuardedSocket(near, lambda: guarded.send(b"of a finalizer"))
    far.send(b"there is input that nobody was told of")
    guarded.send(b"to", b"whom")
    assert [far.recv_multipart(zmq.DONTWAIT) for _ in range(2)] == [[b"to", b"whom"], [b"of a finalizer"]]
