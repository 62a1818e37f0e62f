"""Real processes: a sender here, forked receivers that check every byte."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import select
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from meshbook.runtime.wire.messages import BlockRef
from meshbook.runtime.wire.pool import Mapped, Pool

pytestmark = pytest.mark.skipif(not Pool.available(), reason="needs memfds")

PAGE = mmap.PAGESIZE


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool(segment_bytes=64 * PAGE)
    yield pool
    pool.close()


BLOCKS = 1500


class Fork:
    """A receiver in a process of its own, and the socket to it."""

    def __init__(self, body: Callable[[socket.socket], None]) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                signal.alarm(30)
                self.socket.close()
                body(theirs)
                code = 0
            except BaseException as error:  # noqa: BLE001 - the sender shall hear of it, and pytest must not run on here
                theirs.send(b"!" + repr(error).encode())
            finally:
                os._exit(code)
        theirs.close()

    def send(self, pool: Pool, ref: BlockRef, note: bytes = b"-") -> None:
        for segment in pool.segments_for(self.pid):
            socket.send_fds(self.socket, [b"s%d %d" % (segment.id, segment.size)], [segment.fd])
        self.socket.send(note + msgspec.msgpack.encode(ref))

    def answer(self, flags: int = 0) -> bytes:
        data = self.socket.recv(4096, flags)
        assert not data.startswith(b"!"), data.decode()
        return data

    def end(self) -> int:
        """Let it finish; its exit code."""
        with contextlib.suppress(OSError):  # it may be dead
            self.socket.shutdown(socket.SHUT_WR)  # a close would not do: forks made later hold this end too
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.socket.close()
        return code


def blocks_from(link: socket.socket, mapped: Mapped) -> Iterator[tuple[bytes, BlockRef, memoryview]]:
    """What a receiver is sent, until the sender closes."""
    while True:
        data, fds, _, _ = socket.recv_fds(link, 4096, 1)
        if not data:
            return
        if data[:1] == b"s":
            number, size = map(int, data[1:].split())
            mapped.add(number, fds[0], size)
        else:
            ref = msgspec.msgpack.decode(data[1:], type=BlockRef)
            yield data[:1], ref, mapped.take(ref)


def test_what_receivers_write_in_place_stays_their_own(pool: Pool) -> None:
    def body(link: socket.socket) -> None:
        mapped = Mapped(lambda _: None)
        for note, _, view in blocks_from(link, mapped):
            tensor = torch.frombuffer(view, dtype=torch.float32)
            assert float(tensor.sum()) == tensor.numel(), float(tensor.sum())
            tensor += note[0]
            link.send(b"written")
            link.recv(1)  # all have written
            assert float(tensor[0]) == float(tensor[-1]) == 1 + note[0]
            link.send(b"%d" % int(tensor[7]))

    forks = [Fork(body) for _ in range(3)]
    ref = pool.put(torch.ones(5000).numpy().data, ["here", *(fork.pid for fork in forks)])
    for n, fork in enumerate(forks):
        fork.send(pool, ref, bytes([65 + n]))
    assert [fork.answer() for fork in forks] == [b"written"] * 3
    mapped = Mapped(lambda block: None)  # one that comes late reads what the sender still has
    for segment in pool.segments_for("here"):
        mapped.add(segment.id, os.dup(segment.fd), segment.size)
    assert set(np.frombuffer(mapped.take(ref), np.float32)) == {1.0}
    mapped.close()
    for fork in forks:
        fork.socket.send(b"g")
    assert [int(fork.answer()) for fork in forks] == [66, 67, 68]
    assert [fork.end() for fork in forks] == [0, 0, 0]


def test_what_a_child_of_a_receiver_sees_does_not_change(pool: Pool) -> None:
    """As with a checkpoint that it writes: the receiver goes on meanwhile, and lets go of what the child has."""
    released: list[int] = []
    mapped = Mapped(released.append)

    def received(byte: bytes) -> tuple[BlockRef, memoryview]:
        ref = pool.put(byte * PAGE, ["here"])
        for segment in pool.segments_for("here"):
            mapped.add(segment.id, os.dup(segment.fd), segment.size)
        return ref, mapped.take(ref)

    def write(link: socket.socket) -> None:
        link.recv(1)
        link.send(bytes(views[0][:1]))
        link.recv(1)

    ref, view = received(b"a")
    views = [view]
    del view
    child = Fork(write)
    views.clear()
    other, _ = received(b"b")
    assert ref.id not in released
    assert other.offset != ref.offset
    child.socket.send(b"-")
    assert child.answer() == b"a"
    assert child.end() == 0
    received(b"c")
    assert ref.id in released
    mapped.close()


def test_a_child_keeps_only_what_was_held_when_it_was_forked(pool: Pool) -> None:
    released: list[int] = []
    mapped = Mapped(released.append)
    early, late = (pool.put(byte * PAGE, ["here"]) for byte in (b"a", b"b"))
    for segment in pool.segments_for("here"):
        mapped.add(segment.id, os.dup(segment.fd), segment.size)
    view = mapped.take(early)
    child = Fork(lambda link: [link.recv(1)].clear())
    mapped.take(late)
    del view
    assert released == [late.id]
    assert child.end() == 0
    mapped.close()


def pattern(block: int, length: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Bytes that differ from page to page and from block to block."""
    words = np.arange(length // 8 + 1, dtype=np.uint64) * np.uint64(2 * block + 1) + np.uint64(block)
    return words.view(np.uint8)[:length]


def random_receiver(seed: int, link: socket.socket) -> None:
    """Holds what it gets for a while, writes to some of it, checks all of it on arrival and at the end."""
    dice = random.Random(seed)
    released: deque[int] = deque()
    mapped = Mapped(released.append)
    held: list[tuple[int, Any, Any]] = []

    def drop(index: int) -> None:
        number, array, expected = held.pop(index)
        assert np.array_equal(array, expected), f"block {number} changed while it was held"
        del array
        while released:
            link.send(b"%d" % released.popleft())

    for _, ref, view in blocks_from(link, mapped):
        array: Any = np.frombuffer(view, np.uint8)
        if dice.random() < 0.3:
            array = torch.frombuffer(view, dtype=torch.uint8).numpy()
        del view
        expected = pattern(ref.id, ref.length)
        assert np.array_equal(array, expected), f"block {ref.id} arrived with the bytes of another"
        if dice.random() < 0.5:
            start = dice.randrange(ref.length)
            stop = dice.randrange(start, ref.length) + 1
            array[start:stop] ^= 0x5A
            expected = expected.copy()
            expected[start:stop] ^= 0x5A
        held.append((ref.id, array, expected))
        del array, expected
        while held and dice.random() < 0.2 + 0.1 * len(held):
            drop(dice.randrange(len(held)))
    while held:
        drop(0)


def read_releases(pool: Pool, forks: list[Fork], in_flight: int) -> None:
    """Take the releases that have come; wait for more while more blocks than that are in use."""
    by_socket = {fork.socket: fork for fork in forks}
    while ready := select.select(by_socket, [], [], 30 if pool.stats().blocks > in_flight else 0)[0]:
        for link in ready:
            pool.release(int(by_socket[link].answer()), by_socket[link].pid)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_no_receiver_ever_sees_a_stale_or_foreign_page(seed: int) -> None:
    dice = random.Random(seed)
    forks = [Fork(lambda link, n=n: random_receiver(seed * 100 + n, link)) for n in range(4)]
    with contextlib.closing(Pool(max_bytes=64 << 20, segment_bytes=1 << 20)) as pool:
        bytes_put = reserved = 0
        for number in range(1, BLOCKS + 1):
            length = int(2 ** dice.uniform(0, 19)) + dice.randrange(3)
            to = dice.sample(forks, dice.randrange(1, 5))
            ref = pool.put(pattern(number, length).data, [fork.pid for fork in to])
            assert ref.id == number
            for fork in to:
                fork.send(pool, ref)
            read_releases(pool, forks, in_flight=60)
            bytes_put += length
            reserved = max(reserved, pool.stats().reserved)
            if dice.random() < 0.01:
                pool.trim(keep=dice.choice([0, 1 << 20]))
        assert bytes_put > 5 * reserved, "too little was used again for this to be a test"

        dead = forks.pop(0)
        os.kill(dead.pid, signal.SIGKILL)
        assert dead.end() == -signal.SIGKILL
        pool.forget(dead.pid)
        for fork in forks:
            fork.socket.shutdown(socket.SHUT_WR)
            while data := fork.answer():
                pool.release(int(data), fork.pid)
            assert fork.end() == 0
        assert pool.stats().blocks == 0
        pool.trim()
        assert pool.stats() == (0, 0, 0, 0, 0)
