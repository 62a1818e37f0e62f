from __future__ import annotations

import contextlib
import gc
import mmap
import os
import pickle
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from meshbook.runtime.wire import codec
from meshbook.runtime.wire import pool as pool_module
from meshbook.runtime.wire.pool import Mapped, Pool, PoolFull, room_for

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
    ref = pool.put(array.data, [0])
    with receiver(pool, key=0) as (mapped, _):  # pyright: ignore[reportArgumentType]
        assert np.array_equal(np.frombuffer(mapped.take(ref)).reshape(20, 30), array)
    with pytest.raises(TypeError, match="contiguous"):
        pool.put(array.data[::2], [0])


def test_what_makes_no_sense_to_put(pool: Pool) -> None:
    with pytest.raises(ValueError, match="a block needs a receiver"):
        pool.put(b"x", [])
    with pytest.raises(ValueError, match="an empty buffer has nothing to share"):
        pool.put(b"", [0])


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
    refs = [pool.put(bytes(PAGE), [0]) for _ in range(3)]
    for ref in refs:
        pool.release(ref.id, 0)
    assert pool.put(bytes(PAGE), [0]).offset == refs[-1].offset


def test_a_dead_receiver_releases_all_it_held(pool: Pool) -> None:
    both = pool.put(bytes(PAGE), ["a", "b"])
    pool.put(bytes(PAGE), ["b"])
    pool.forget("b")
    assert pool.stats().blocks == 1
    pool.release(both.id, "b")  # a release that was under way when it died
    pool.release(both.id, "a")
    assert pool.stats().blocks == 0
    assert pool.segments_for("b") == []


def test_a_block_whose_receiver_goes_while_it_is_filled_is_not_used_before_that_is_done(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill = pool_module._Region.fill
    found: list[Any] = []

    def fill_late(region: Any, offset: int, source: memoryview) -> None:
        if not found:
            found.append(None)
            pool.forget("dying")
            found[:] = [pool.put(b"2" * PAGE, ["here"])]
        fill(region, offset, source)

    monkeypatch.setattr(pool_module._Region, "fill", fill_late)
    pool.put(b"1" * PAGE, ["dying"])
    with receiver(pool) as (mapped, _):
        assert bytes(mapped.take(found[0])) == b"2" * PAGE
    assert pool.stats().blocks == 1


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
    refs = [pool.put(bytes(1 << 20), [0]) for _ in range(4)]
    with pytest.raises(PoolFull, match=r"^no room for 1\.0 MB: 4\.0 MB of the 4\.0 MB .* raise max_bytes$"):
        pool.put(bytes(1 << 20), [0])
    with pytest.raises(MemoryError):
        pool.put(bytes(5 << 20), [0])
    for ref in refs:
        pool.release(ref.id, 0)
    pool.put(bytes(4 << 20), [0])  # the small segments make room for a large one
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


@given(st.integers(1, 1 << 40))
def test_the_room_of_a_block_is_whole_pages_and_little_more_than_it_needs(length: int) -> None:
    room = room_for(length)
    assert room % PAGE == 0 and length <= room < length * 1.13 + 2 * PAGE
