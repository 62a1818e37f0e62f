"""Messages with payloads over each kind of link, and the shared memory of those that can use it."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from meshbook.runtime.wire.codec import Encoded, decode, encode
from meshbook.runtime.wire.inproc import InprocLink
from meshbook.runtime.wire.lane import INLINE, Frames, Lane, pack
from meshbook.runtime.wire.link import LARGEST, Link, PairLink
from meshbook.runtime.wire.messages import AnyMessage, Bye, Call, Reply
from meshbook.runtime.wire.pool import Pool
from meshbook.runtime.wire.reactor import Reactor
from meshbook.runtime.wire.wiring import wiring
from meshbook.runtime.wire.zmq_link import ZmqLink

KINDS = ["pair", "inproc", "zmq"]


@dataclass
class Lanes:
    """Both ends of a data lane, each with a pool, as an agent and a rank have them."""

    near: Lane
    far: Lane
    pool: Pool
    """What `near` puts large frames into, if anything."""


@pytest.fixture(params=KINDS)
def lanes(request: pytest.FixtureRequest) -> Iterator[Lanes]:
    with connected(request.param) as lanes:
        yield lanes


@pytest.fixture
def paired() -> Iterator[Lanes]:
    """Only the kind that shares memory."""
    with connected("pair") as lanes:
        yield lanes


@contextlib.contextmanager
def connected(kind: str) -> Iterator[Lanes]:
    with contextlib.ExitStack() as stack:
        near, far = links(kind, stack)
        pools = Pool(), Pool()
        lanes = Lanes(Lane(near, pools[0], "rank"), Lane(far, pools[1], "controller"), pools[0])
        yield lanes
        lanes.far.close()
        lanes.near.close()
        gc.collect()  # views of shared memory, before their descriptors are counted
        for pool in pools:
            pool.close()


def links(kind: str, stack: contextlib.ExitStack) -> tuple[Link, Link]:
    if kind == "pair":
        near, theirs = PairLink.make()
        return near, PairLink(theirs)
    if kind == "inproc":
        return InprocLink.make()
    reactor = Reactor()
    stack.callback(reactor.close)
    hub = wiring("zmq", reactor)
    stack.callback(hub.close)
    near, end = hub.open()
    assert end.address is not None
    return near, ZmqLink(end.address)


def received(lane: Lane) -> tuple[AnyMessage, Frames]:
    return lane.recv()


def test_a_message_without_payload(lanes: Lanes) -> None:
    lanes.near.send(Bye())
    assert received(lanes.far) == (Bye(), [])


@pytest.mark.parametrize("size", [0, 100, INLINE, INLINE + 1, 3 * LARGEST, 5 << 20])
def test_a_payload_of_any_size_arrives_both_ways(lanes: Lanes, size: int) -> None:
    value = {"text": "hello", "data": bytearray(os.urandom(size))}
    for sender, receiver in ((lanes.near, lanes.far), (lanes.far, lanes.near)):
        sender.send(Reply(7), encode(value))
        message, frames = received(receiver)
        assert message == Reply(7)
        assert decode(frames[0], frames[1:]) == value


def test_frames_are_writable_and_private(lanes: Lanes) -> None:
    sent = bytes(100_000)
    lanes.near.send(Reply(1), Encoded(b"head", [memoryview(sent)]))
    lanes.near.send(Reply(2), Encoded(b"head", [memoryview(sent)]))
    first = received(lanes.far)[1][1]
    first[:3] = b"own"
    second = received(lanes.far)[1][1]
    assert bytes(first[:4]) == b"own\0" and bytes(second) == sent


def test_large_frames_are_shared_only_where_descriptors_pass(lanes: Lanes) -> None:
    parts = pack(Reply(1), Encoded(b"", [memoryview(bytes(1 << 20))]), lanes.near.pool, ["rank"])
    assert sum(map(len, parts)) < 1000 if lanes.near.link.carries_fds else sum(map(len, parts)) > 1 << 20
    assert lanes.pool.stats().blocks == (1 if lanes.near.link.carries_fds else 0)


def test_to_hear_that_one_block_of_many_is_free_looks_at_no_segment(
    lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is known to go back to the system before the last one is: n blocks would cost n² to let go."""
    for number in (1, 2):
        lanes.near.send(Reply(number), Encoded(b"head", [memoryview(bytes(100_000))]))
    kept = [received(lanes.far) for _ in range(2)]
    del kept[0]
    lanes.far.send_releases()
    lanes.far.send(Bye())
    with monkeypatch.context() as patch:
        patch.delattr("meshbook.runtime.wire.pool._Region.resident")
        assert received(lanes.near) == (Bye(), [])
    assert lanes.pool.has_blocks is lanes.near.link.carries_fds


@pytest.mark.parametrize(("count", "size"), [(20_000, 20), (300, 4000), (100, INLINE)])
def test_many_small_frames_are_more_than_a_datagram(lanes: Lanes, count: int, size: int) -> None:
    buffers = [memoryview(index.to_bytes(4, "big") * (size // 4)) for index in range(count)]
    sender = threading.Thread(target=lambda: [lanes.near.send(Reply(1), Encoded(b"head", buffers)) for _ in range(2)])
    sender.start()
    for _ in range(2):
        frames = received(lanes.far)[1]
        assert frames[1:] == buffers
        del frames
    sender.join()


def test_a_message_that_is_large_itself_arrives(lanes: Lanes) -> None:
    message = Call(1, 2, "name" * LARGEST)
    lanes.near.send(message)
    assert received(lanes.far) == (message, [])


def test_a_lane_without_a_pool_sends_any_size_too() -> None:
    with connected("pair") as lanes:
        control = Lane(lanes.near.link)
        data = os.urandom(4 * LARGEST)
        sender = threading.Thread(target=control.send, args=(Reply(3), Encoded(data, [])))
        sender.start()
        message, (frame,) = received(lanes.far)
        sender.join()
        assert message == Reply(3) and bytes(frame) == data


class Sender:
    """Something of a program that says a last word when it is not needed any more."""

    def __init__(self, lane: Lane, payload: Encoded) -> None:
        self.lane, self.payload = lane, payload

    def __del__(self) -> None:
        self.lane.send(Reply(2), self.payload)


def collecting(call: Callable[..., Any], garbage: list[Sender]) -> Callable[..., Any]:
    """As if the collector ran inside of this call."""

    def collects(*args: Any) -> Any:
        garbage.clear()
        return call(*args)

    return collects


def test_what_a_finalizer_sends_between_two_pieces_goes_after_them(
    paired: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    control, large = Lane(paired.near.link), [Encoded(os.urandom(3 * LARGEST), []) for _ in range(2)]
    garbage = [Sender(control, large[1])]
    monkeypatch.setattr(control.link, "send", collecting(control.link.send, garbage))
    sender = threading.Thread(target=control.send, args=(Reply(1), large[0]))
    sender.start()
    got = [received(paired.far) for _ in range(2)]
    sender.join()
    assert [(message, bytes(frames[0])) for message, frames in got] == [
        (Reply(number), payload.head) for number, payload in enumerate(large, 1)
    ]


@pytest.mark.parametrize("size", [10, 100_000])
def test_what_a_finalizer_sends_inside_of_the_pool_passes_it_by(
    paired: Lanes, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """On a thread, as one that waits for itself would hold up all tests."""
    garbage = [Sender(paired.near, Encoded(bytes(size), []))]
    monkeypatch.setattr(paired.pool, "_grow", collecting(paired.pool._grow, garbage))
    sender = threading.Thread(target=paired.near.send, args=(Reply(1), encode(bytearray(100_000))), daemon=True)
    sender.start()
    sender.join(10)
    assert not sender.is_alive()
    assert sorted(received(paired.far)[0].seq for _ in range(2)) == [1, 2]  # type: ignore[union-attr]


def test_a_segment_is_announced_once(paired: Lanes) -> None:
    payload = Encoded(b"", [memoryview(bytes(1 << 20))])
    paired.near.send(Reply(1), payload)
    assert paired.near.outgoing([b"next"]) == (([b"next"], ()),), "nothing goes before it any more"
    paired.near.send(Reply(2), payload)
    assert paired.pool.stats().segments == 1
    assert [message for message, _ in (received(paired.far), received(paired.far))] == [Reply(1), Reply(2)]


def test_releases_flow_back(paired: Lanes) -> None:
    paired.near.send(Reply(1), Encoded(b"", [memoryview(bytes(1 << 20))]))
    _, frames = received(paired.far)
    assert paired.pool.stats().blocks == 1
    paired.far.send_releases()
    assert paired.near.recv_nowait() is None
    assert paired.pool.stats().blocks == 1, "it is still in use"
    noted: list[str] = []
    paired.far.on_release = lambda: noted.append("released")
    del frames
    gc.collect()
    assert noted == ["released"]
    paired.far.send_releases()
    assert paired.near.recv_nowait() is None, "a release is not a message of its own"
    assert paired.pool.stats().blocks == 0


def test_the_next_receive_sends_the_releases(paired: Lanes) -> None:
    paired.near.send(Reply(1), Encoded(b"", [memoryview(bytes(1 << 20))]))
    paired.near.send(Bye())
    received(paired.far)
    gc.collect()
    received(paired.far)
    assert paired.near.recv_nowait() is None
    assert paired.pool.stats().blocks == 0


class Contended(deque[int]):
    """Another thread takes one whenever this one has looked whether there are some."""

    def __bool__(self) -> bool:
        is_any = len(self) > 0
        if is_any:
            self.popleft()
        return is_any


def test_two_threads_may_send_releases_at_once(paired: Lanes) -> None:
    for number in (1, 2):
        paired.near.send(Reply(number), Encoded(b"", [memoryview(bytes(1 << 20))]))
    held = [received(paired.far), received(paired.far)]
    held.clear()
    gc.collect()
    paired.far._released = Contended(paired.far._released)
    paired.far.send_releases()
    assert paired.near.recv_nowait() is None
    assert paired.pool.stats().blocks == 1


def test_a_link_without_descriptors_has_no_pool(lanes: Lanes) -> None:
    assert (lanes.near.pool is not None) == lanes.near.link.carries_fds
    assert lanes.near.outgoing([b"next"]) == (([b"next"], ()),)
    lanes.far.send_releases()
    assert lanes.near.recv_nowait() is None
