from __future__ import annotations

import contextlib
import gc
import mmap
import os
import pickle
import random
import select
import signal
import socket
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from meshbook.runtime.wire import codec
from meshbook.runtime.wire.messages import BlockRef
from meshbook.runtime.wire.pool import Extents, Mapped, Pool, PoolFull, room_for

pytestmark = pytest.mark.skipif(not Pool.available(), reason="needs memfds")

PAGE = mmap.PAGESIZE


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool(segment_bytes=64 * PAGE)
    yield pool
    pool.close()


@contextlib.contextmanager
def receiver(pool: Pool, key: str = "here") -> Iterator[tuple[Mapped, deque[int]]]:
    """A receiver in this process; what it releases is noted, not told to the pool."""
    released: deque[int] = deque()
    mapped = Mapped(released.append)
    hand_over(pool, mapped, key)
    yield mapped, released
    mapped.close()


def hand_over(pool: Pool, mapped: Mapped, key: str = "here") -> None:
    for segment in pool.segments_for(key):
        mapped.add(segment.id, os.dup(segment.fd), segment.size)


def test_a_block_arrives_as_it_was_put(pool: Pool) -> None:
    data = os.urandom(3 * PAGE + 17)
    ref = pool.put(data, ["here"])
    with receiver(pool) as (mapped, _):
        view = mapped.take(ref)
        assert view.nbytes == len(data) and bytes(view) == data
        assert not view.readonly and view.format == "B"
        del view


def test_any_contiguous_buffer_can_be_put(pool: Pool) -> None:
    array = np.arange(600.0).reshape(20, 30)
    ref = pool.put(array.data, 1)
    with receiver(pool, key=0) as (mapped, _):  # pyright: ignore[reportArgumentType]
        assert np.array_equal(np.frombuffer(mapped.take(ref)).reshape(20, 30), array)
    with pytest.raises(TypeError, match="contiguous"):
        pool.put(array.data[::2], 1)


def test_what_makes_no_sense_to_put(pool: Pool) -> None:
    with pytest.raises(ValueError, match="a block needs a receiver"):
        pool.put(b"x", [])
    with pytest.raises(ValueError, match="an empty buffer has nothing to share"):
        pool.put(b"", 1)


def test_a_block_is_used_again_only_after_all_have_released_it(pool: Pool) -> None:
    first = pool.put(bytes(PAGE), ["a", "b"])
    pool.release(first.id, "a")
    pool.release(first.id, "a")
    second = pool.put(bytes(PAGE), ["a"])
    assert second.offset != first.offset and pool.stats().blocks == 2
    pool.release(first.id, "b")
    third = pool.put(bytes(PAGE), ["a"])
    assert third.offset == first.offset and third.id != first.id


def test_what_was_released_last_is_used_first(pool: Pool) -> None:
    refs = [pool.put(bytes(PAGE), 1) for _ in range(3)]
    for ref in refs:
        pool.release(ref.id, 0)
    assert pool.put(bytes(PAGE), 1).offset == refs[-1].offset


def test_a_dead_receiver_releases_all_it_held(pool: Pool) -> None:
    both = pool.put(bytes(PAGE), ["a", "b"])
    pool.put(bytes(PAGE), ["b"])
    pool.forget("b")
    assert pool.stats().blocks == 1
    pool.release(both.id, "b")  # a release that was under way when it died
    pool.release(both.id, "a")
    assert pool.stats().blocks == 0
    assert pool.segments_for("b") == []


def test_each_receiver_is_given_each_segment_once_and_only_if_it_needs_it(pool: Pool) -> None:
    pool.put(bytes(PAGE), ["a"])
    assert [s.id for s in pool.segments_for("a")] == [1]
    assert pool.segments_for("a") == pool.segments_for("b") == []
    pool.put(bytes(PAGE), ["a"])
    assert pool.segments_for("a") == []
    pool.put(bytes(100 * PAGE), ["a", "b"])  # larger than what is left of the first
    assert [s.id for s in pool.segments_for("a")] == [s.id for s in pool.segments_for("b")] == [2]
    assert pool.segments_for("a") == []


def test_the_limit_is_named_when_it_is_reached() -> None:
    pool = Pool(max_bytes=4 << 20, segment_bytes=1 << 20)
    refs = [pool.put(bytes(1 << 20), 1) for _ in range(4)]
    with pytest.raises(PoolFull, match=r"^no room for 1\.0 MB: 4\.0 MB of the 4\.0 MB .* raise max_bytes$"):
        pool.put(bytes(1 << 20), 1)
    with pytest.raises(MemoryError):
        pool.put(bytes(5 << 20), 1)
    for ref in refs:
        pool.release(ref.id, 0)
    pool.put(bytes(4 << 20), 1)  # the small segments make room for a large one
    assert pool.stats().reserved <= 4 << 20
    pool.close()


def test_trim_gives_idle_memory_back_and_tells_what_it_closed(pool: Pool) -> None:
    small = pool.put(bytes(PAGE), ["a"])
    large = pool.put(bytes(100 * PAGE), ["a"])
    pool.segments_for("a")
    assert pool.trim() == 0
    pool.release(large.id, "a")
    assert pool.trim(keep=200 * PAGE) == 0
    assert pool.trim() >= 100 * PAGE
    assert pool.closed_for("a") == [large.segment] and pool.closed_for("a") == []
    assert pool.stats().resident == PAGE
    pool.release(small.id, "a")
    pool.trim()
    assert pool.stats() == (0, 0, 0, 0, 0)


def test_trim_empties_the_free_parts_of_a_segment_in_use(pool: Pool) -> None:
    refs = [pool.put(os.urandom(8 * PAGE), ["here"]) for _ in range(4)]
    data = os.urandom(8 * PAGE)
    kept = pool.put(data, ["here"])
    for ref in refs:
        pool.release(ref.id, "here")
    assert pool.trim() == 32 * PAGE
    assert pool.stats().resident == 8 * PAGE
    with receiver(pool) as (mapped, _):
        assert bytes(mapped.take(kept)) == data


USES: dict[str, Callable[[memoryview], Any]] = {
    "memoryview": lambda view: view,
    "slice of a slice": lambda view: view[10:][5:20],
    "cast": lambda view: view[:800].cast("d"),
    "numpy": lambda view: np.frombuffer(view, np.uint8),
    "numpy view of a view": lambda view: np.frombuffer(view, np.float32).reshape(-1, 4)[::2].T,
    "torch": lambda view: torch.frombuffer(view, dtype=torch.float32),
    "torch view of a view": lambda view: torch.frombuffer(view, dtype=torch.int16).view(-1, 2)[::2].t(),
    "torch storage": lambda view: torch.frombuffer(view, dtype=torch.uint8).untyped_storage(),
    "torch detached": lambda view: torch.frombuffer(view, dtype=torch.uint8).detach()[1:],
    "torch.from_numpy": lambda view: torch.from_numpy(np.frombuffer(view, np.uint8)),
    "numpy of torch": lambda view: torch.frombuffer(view, dtype=torch.uint8).numpy()[3:],
    "parameter": lambda view: torch.nn.Parameter(torch.frombuffer(view, dtype=torch.float32)),
    "part of a graph": lambda view: torch.frombuffer(view, dtype=torch.float32) * torch.ones(1, requires_grad=True),
    "pickle buffer": lambda view: pickle.PickleBuffer(view),
    "pickle buffer of an array": lambda view: codec.encode(np.frombuffer(view, np.uint8)).buffers,
    "encoded tensor": lambda view: codec.encode(torch.frombuffer(view, dtype=torch.uint8)).buffers,
    "closure": lambda view: lambda: view,
}


@pytest.mark.parametrize("use", USES)
def test_whatever_is_made_of_a_block_keeps_it_until_it_is_gone(pool: Pool, use: str) -> None:
    ref = pool.put(bytes(4 * PAGE), ["here"])
    with receiver(pool) as (mapped, released):
        thing = USES[use](mapped.take(ref))
        assert not released and mapped.live() == 1
        del thing
        assert list(released) == [ref.id] and mapped.live() == 0


def test_a_block_is_kept_by_a_cycle_and_by_what_its_finalizer_reads(pool: Pool) -> None:
    seen: list[float] = []

    class Node:
        def __init__(self, tensor: torch.Tensor) -> None:
            self.tensor = tensor
            self.me = self

        def __del__(self) -> None:
            seen.append(float(self.tensor.sum()))

    ref = pool.put(np.ones(PAGE, np.float32).data, ["here"])
    with receiver(pool) as (mapped, released):
        node = Node(torch.frombuffer(mapped.take(ref), dtype=torch.float32).add_(1))
        del node
        assert not released
        gc.collect()
        assert seen == [2.0 * PAGE] and list(released) == [ref.id]


def test_views_of_one_block_release_it_together(pool: Pool) -> None:
    ref = pool.put(np.arange(PAGE).data, ["here"])
    with receiver(pool) as (mapped, released):
        whole = np.frombuffer(mapped.take(ref), np.int64)
        parts = [whole[i::7] for i in range(7)]
        del whole
        while parts:
            assert not released
            parts.pop()
        assert list(released) == [ref.id]


def test_written_pages_do_not_hide_what_is_put_there_next(pool: Pool) -> None:
    first = pool.put(b"a" * 3 * PAGE, ["here"])
    with receiver(pool) as (mapped, _):
        view = mapped.take(first)
        view[:] = b"X" * len(view)
        del view
        pool.release(first.id, "here")
        second = pool.put(b"b" * 3 * PAGE, ["here"])
        assert second.offset == first.offset
        assert set(bytes(mapped.take(second))) == {ord("b")}


def test_dropping_one_block_leaves_what_was_written_to_its_neighbours(pool: Pool) -> None:
    refs = [pool.put(bytes(PAGE + 1), ["here"]) for _ in range(3)]
    with receiver(pool) as (mapped, _):
        left, middle, right = (mapped.take(ref) for ref in refs)
        for view in (left, middle, right):
            view[:] = b"X" * len(view)
        del middle
        assert set(bytes(left)) == set(bytes(right)) == {ord("X")}
        del left, right, view


def test_a_drop_on_another_thread_counts_too(pool: Pool) -> None:
    ref = pool.put(bytes(PAGE), ["here"])
    with receiver(pool) as (mapped, released):
        box = [np.frombuffer(mapped.take(ref), np.uint8)]
        thread = threading.Thread(target=box.clear)
        thread.start()
        thread.join()
        assert list(released) == [ref.id]


def test_an_interrupt_in_the_note_of_a_release_loses_no_block(pool: Pool) -> None:
    refs = [pool.put(bytes(PAGE), ["here"]) for _ in range(2)]
    released: list[int] = []
    trouble: list[BaseException] = [KeyboardInterrupt()]

    def note(block: int) -> None:
        if trouble:
            raise trouble.pop()
        released.append(block)

    mapped = Mapped(note)
    hand_over(pool, mapped)
    view = mapped.take(refs[0])
    with unraisable() as errors:
        del view
    assert errors == [KeyboardInterrupt] and released == []
    view = mapped.take(refs[1])
    assert released == [refs[0].id]
    del view
    assert released == [ref.id for ref in refs]
    mapped.close()


@contextlib.contextmanager
def unraisable() -> Iterator[list[type[BaseException]]]:
    """The errors that Python could only have printed."""
    errors: list[type[BaseException]] = []
    before, sys.unraisablehook = sys.unraisablehook, lambda error: errors.append(error.exc_type)
    try:
        yield errors
    finally:
        sys.unraisablehook = before


def test_a_segment_that_is_closed_at_both_ends_leaves_nothing() -> None:
    gc.collect()
    before = sorted(os.listdir("/proc/self/fd"))
    pool = Pool()
    ref = pool.put(bytes(1 << 20), ["here"])
    released: deque[int] = deque()
    mapped = Mapped(released.append)
    hand_over(pool, mapped)
    tensor = torch.frombuffer(mapped.take(ref), dtype=torch.uint8)
    mapped.drop(ref.segment)
    pool.close()
    assert int(tensor.sum()) == 0  # what is in use stays valid
    del tensor
    assert list(released) == [ref.id]
    mapped.close()
    gc.collect()
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_receiver_that_is_forgotten_does_not_keep_its_memory() -> None:
    mapped = Mapped(lambda _: None)
    watch = weakref.ref(mapped)
    del mapped
    gc.collect()
    assert watch() is None


def test_put_and_release_from_many_threads(pool: Pool) -> None:
    failures: list[str] = []

    def work(key: str) -> None:
        with receiver(pool, key) as (mapped, released):
            for n in range(150):
                ref = pool.put(bytes([n]) * (n * 97 + 1), [key])
                hand_over(pool, mapped, key)
                if set(bytes(mapped.take(ref))) != {n}:
                    failures.append(f"{key} {n}")
                pool.release(released.popleft(), key)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and pool.stats().blocks == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 30)), max_size=60))
def test_extents_never_overlap_and_nothing_gets_lost(steps: list[tuple[bool, int]]) -> None:
    free = Extents(100)
    taken: dict[int, int] = {}
    for is_take, size in steps:
        if is_take or not taken:
            offset = free.take(size)
            if offset is not None:
                assert all(offset + size <= o or o + s <= offset for o, s in taken.items())
                taken[offset] = size
            else:
                assert all(hole < size for _, hole in free.holes())
        else:
            offset = list(taken)[size % len(taken)]
            free.give(offset, taken.pop(offset))
        assert free.used == sum(taken.values())
    for offset, size in taken.items():
        free.give(offset, size)
    assert free.holes() == [(0, 100)]


@given(st.integers(1, 1 << 40))
def test_the_room_of_a_block_is_whole_pages_and_little_more_than_it_needs(length: int) -> None:
    room = room_for(length)
    assert room % PAGE == 0 and length <= room < length * 1.13 + 2 * PAGE


# Real processes: a sender here, forked receivers that check every byte.


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
    with receiver(pool) as (mapped, _):  # one that comes late reads what the sender still has
        assert set(np.frombuffer(mapped.take(ref), np.float32)) == {1.0}
    for fork in forks:
        fork.socket.send(b"g")
    assert [int(fork.answer()) for fork in forks] == [66, 67, 68]
    assert [fork.end() for fork in forks] == [0, 0, 0]


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
