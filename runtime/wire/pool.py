"""Large buffers through shared memory: one copy by the sender, however many processes receive it.

A `Pool` copies a buffer into a block of a memfd and hands out a `BlockRef`; a `Mapped` at each receiver makes
a writable object of the reference. It maps the memory privately: reading needs no copy, and what a receiver
writes in place stays its own, because the kernel copies the pages it touches.

Such a copied page hides whatever the sender puts there next. So when the last object over a block is gone,
the receiver drops the block's pages before it gives the block back; only then does the sender use it again.

A memfd has no name: nothing is left behind when processes die, and it needs no room in `/dev/shm`. It counts
as memory of the processes that use it.

A child that a receiver forks sees its blocks too: they are given back when both have let go (`leases`).
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ..system.oom import memory_size
from .extents import Extents
from .held import held_here
from .leases import Lease, lend_to_children
from .messages import BlockRef

if TYPE_CHECKING:
    from .link import Buffer

SEGMENT = 64 << 20
"""The size in bytes of a pool's first segment; the next ones grow with the pool, to keep descriptors few."""

_LARGEST_GROWTH = 1 << 30
_CHUNK = 4 << 20  # other threads get a turn between the pieces of a long copy


class PoolFull(MemoryError):
    """A buffer does not fit below the pool's limit, or the system gives no more; the text names both."""


class Segment(NamedTuple):
    """A region of shared memory, for handing it to a receiver: `fd` stays the pool's own."""

    id: int
    fd: int
    size: int


class Stats(NamedTuple):
    """How much a pool holds, in bytes: what receivers use, what is reserved, what is really in memory."""

    blocks: int
    used: int
    reserved: int
    resident: int
    segments: int


class _Region:
    """A segment at its owner: the memory, its descriptor, and what of it is free."""

    def __init__(self, number: int, size: int) -> None:
        fd = os.memfd_create("meshbook-pool", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, size)
            self.memory = _map(fd, size, mmap.MAP_SHARED)
        except BaseException:
            os.close(fd)
            raise
        self.segment = Segment(number, fd, size)
        self.free = Extents(size)

    def fill(self, offset: int, source: memoryview) -> None:
        for at in range(0, source.nbytes, _CHUNK):
            piece = source[at : at + _CHUNK]
            self.memory[offset + at : offset + at + piece.nbytes] = piece

    def resident(self) -> int:
        """Bytes of it that are in memory."""
        return os.fstat(self.segment.fd).st_blocks * 512

    def punch(self) -> None:
        """Give the memory of all that is free back to the system."""
        for offset, size in self.free.holes():
            self.memory.madvise(mmap.MADV_REMOVE, offset, size)

    def close(self) -> None:
        self.memory.close()
        os.close(self.segment.fd)


_WRITER = object()
"""Has a block while it is filled: all receivers may go meanwhile, and it must not be put to another use before."""


@dataclass(slots=True)
class _Block:
    region: _Region
    offset: int
    room: int
    waiting: set[Hashable]


class _Peer:
    """What a receiver knows of the segments: given, to be given, and closed since."""

    def __init__(self) -> None:
        self.knows: set[int] = set()
        self.new: list[Segment] = []
        self.closed: list[int] = []


class Pool:
    """The sender's side. Any thread may use it.

    Each receiver is known by a key of the caller's choice, such as a rank.

    Example:
        >>> pool = Pool()
        >>> ref = pool.put(b"weights", ["left", "right"])
        >>> [segment.size for segment in pool.segments_for("left")]  # to be passed along before `ref`
        [67108864]
        >>> pool.release(ref.id, "left")
        >>> pool.release(ref.id, "right")
        >>> pool.stats().blocks
        0
        >>> pool.close()
    """

    def __init__(self, max_bytes: int | None = None, segment_bytes: int = SEGMENT) -> None:
        self._max_bytes = max_bytes
        self._segment_bytes = segment_bytes
        self._regions: list[_Region] = []
        self._blocks: dict[int, _Block] = {}
        self._peers: dict[Hashable, _Peer] = {}
        self._last_block = 0
        self._last_segment = 0
        self.news = 0
        """Goes up when `segments_for` or `closed_for` may have something new for somebody."""
        self._lock = threading.RLock()  # callers put while the thread that receives releases; no copy under it
        self.is_in_use_here = held_here(self._lock)
        """Does a `__del__` ask, which the collector runs in the midst of what this thread does here? It passes by."""

    @staticmethod
    def available() -> bool:
        """Whether this system has memfds: Linux, unless a sandbox forbids them."""
        try:
            os.close(os.memfd_create("meshbook-probe", os.MFD_CLOEXEC))
        except (AttributeError, OSError):
            return False
        return True

    @cached_property
    def max_bytes(self) -> int:
        """So much is reserved at most: half of the memory, if nobody said."""
        # Found out when it is first needed: most ranks never share anything.
        return self._max_bytes or memory_size() // 2

    @property
    def has_blocks(self) -> bool:
        """Whether a receiver uses any; unlike `stats`, it is had for nothing."""
        return bool(self._blocks)

    def put(self, buffer: Buffer, receivers: Iterable[Hashable]) -> BlockRef:
        """Copy a contiguous buffer into a block that stays until each receiver, by its key, has released it.

        Raises `PoolFull`, and ValueError for an empty buffer, which has nothing to share.
        """
        keys = set(receivers)
        if not keys:
            raise ValueError("a block needs a receiver: without one, nobody would ever release it")
        source = memoryview(buffer)
        if not source.nbytes:
            raise ValueError("an empty buffer has nothing to share: send it with the message")
        source = source.cast("B")
        ref, region = self._reserve(source.nbytes, keys)
        done: set[Hashable] = keys | {_WRITER}
        try:
            region.fill(ref.offset, source)
            done = {_WRITER}
        finally:
            self._release(ref.id, done)
        return ref

    def release(self, block: int, receiver: Hashable) -> None:
        """A receiver no longer uses a block. One that was released before, or forgotten, changes nothing."""
        self._release(block, {receiver})

    def announce_again(self, receiver: Hashable, segment: int) -> None:
        """A receiver could not take in this segment: it is given it with the next reference."""
        with self._lock:
            if (peer := self._peers.get(receiver)) is not None:
                peer.knows.discard(segment)

    def forget(self, receiver: Hashable) -> None:
        """A receiver is gone: it releases all it holds. Should it come back, it is new."""
        with self._lock:
            self._peers.pop(receiver, None)
            held = [number for number, block in self._blocks.items() if receiver in block.waiting]
        for number in held:
            self._release(number, {receiver})

    def segments_for(self, receiver: Hashable) -> list[Segment]:
        """The segments that a receiver must be given before the references made for it so far; each once."""
        with self._lock:
            peer = self._peers.get(receiver)
            if peer is None or not peer.new:
                return []
            new, peer.new = peer.new, []
            return new

    def closed_for(self, receiver: Hashable) -> list[int]:
        """The segments that a receiver was given and that are closed since (for `Mapped.drop`); each once."""
        with self._lock:
            peer = self._peers.get(receiver)
            if peer is None or not peer.closed:
                return []
            closed, peer.closed = peer.closed, []
            return closed

    def trim(self, keep: int = 0) -> int:
        """Give memory that no block uses back to the system, down to `keep` bytes; the bytes given back.

        Empty segments are closed (see `closed_for`), the free parts of the others emptied.
        """
        with self._lock:
            before = self._resident()
            self._close_empty(keep)
            for region in self._regions:
                if self._resident() <= keep:
                    break
                region.punch()
            return before - self._resident()

    def stats(self) -> Stats:
        """How much it holds at this moment."""
        with self._lock:
            used = sum(block.room for block in self._blocks.values())
            return Stats(len(self._blocks), used, self._reserved(), self._resident(), len(self._regions))

    def close(self) -> None:
        """Let go of all memory. What receivers have mapped stays valid for them."""
        with self._lock:
            for region in self._regions:
                region.close()
            self._regions.clear()
            self._blocks.clear()
            self._peers.clear()

    def _reserve(self, length: int, keys: set[Hashable]) -> tuple[BlockRef, _Region]:
        room = room_for(length)
        with self._lock:
            region, offset = self._place(room)
            self._last_block += 1
            self._blocks[self._last_block] = _Block(region, offset, room, {_WRITER, *keys})
            for key in keys:
                peer = self._peers.setdefault(key, _Peer())
                if region.segment.id not in peer.knows:
                    peer.knows.add(region.segment.id)
                    peer.new.append(region.segment)
                    self.news += 1
            return BlockRef(region.segment.id, offset, length, self._last_block), region

    def _place(self, room: int) -> tuple[_Region, int]:
        for region in self._regions:
            if (offset := region.free.take(room)) is not None:
                return region, offset
        region = self._grow(room)
        offset = region.free.take(room)
        assert offset is not None
        return region, offset

    def _grow(self, room: int) -> _Region:
        if self._reserved() + room > self.max_bytes:
            self._close_empty(0)
        reserved = self._reserved()
        if reserved + room > self.max_bytes:
            used = sum(region.free.used for region in self._regions)
            raise PoolFull(
                f"no room for {_mb(room)}: {_mb(used)} of the {_mb(self.max_bytes)} that may be shared are"
                " in use; delete what was received, or raise max_bytes"
            )
        wanted = max(room, self._segment_bytes, min(reserved, _LARGEST_GROWTH))
        self._last_segment += 1
        try:
            region = _Region(self._last_segment, min(wanted, _pages(self.max_bytes - reserved)))
        except OSError as error:  # this process has too many files open, or too much memory mapped
            raise PoolFull(f"no room for {_mb(room)}: this process gets no more shared memory: {error}") from error
        self._regions.append(region)
        return region

    def _release(self, number: int, keys: set[Hashable]) -> None:
        with self._lock:
            block = self._blocks.get(number)
            if block is None:
                return
            block.waiting -= keys
            if not block.waiting:
                del self._blocks[number]
                block.region.free.give(block.offset, block.room)

    def _close_empty(self, keep: int) -> None:
        """Close segments without a block while more than `keep` bytes are in memory, the newest first."""
        for region in self._regions[::-1]:
            if region.free.used or self._resident() - region.resident() < keep:
                continue
            self._regions.remove(region)
            self._forget_segment(region.segment)
            region.close()

    def _forget_segment(self, segment: Segment) -> None:
        self.news += 1
        for peer in self._peers.values():
            if segment in peer.new:
                peer.new.remove(segment)
            elif segment.id in peer.knows:
                peer.closed.append(segment.id)
            peer.knows.discard(segment.id)

    def _reserved(self) -> int:
        return sum(region.segment.size for region in self._regions)

    def _resident(self) -> int:
        return sum(region.resident() for region in self._regions)


class _Held(weakref.ref["ctypes.Array[ctypes.c_ubyte]"]):
    """Watches an object that `take` gave out, and knows the block below it."""

    __slots__ = ("is_dropped", "leases", "memory", "notify", "ref")

    leases: tuple[Lease, ...]
    memory: mmap.mmap
    ref: BlockRef
    is_dropped: bool
    notify: weakref.ref[ctypes.Array[ctypes.c_ubyte]]


class Mapped:
    """The receiver's side, for the blocks of one pool. One thread takes; what it takes may be dropped on any.

    `on_release` is called with the number of each block that is no longer used here, for `Pool.release`. That
    happens wherever the last reference to it went away, so all it may do is take a note.
    """

    def __init__(self, on_release: Callable[[int], object]) -> None:
        self._on_release = on_release
        self._memory: dict[int, mmap.mmap] = {}
        self._held: dict[int, _Held] = {}
        self._dead: deque[_Held] = deque()
        self._lent: deque[_Held] = deque()  # dead as well, but for children
        lend_to_children(self)

    def add(self, segment: int, fd: int, size: int) -> None:
        """Map a segment, and close the descriptor."""
        try:
            self._memory[segment] = _map(fd, size, mmap.MAP_PRIVATE)
        finally:
            os.close(fd)

    def drop(self, segment: int) -> None:
        """Forget a segment that the pool has closed; what still uses it keeps it."""
        self._memory.pop(segment, None)

    def take(self, ref: BlockRef) -> memoryview:
        """The bytes of a block, writable and private to this process. Whatever is made of them keeps it."""
        if self._lent:
            self._dead.extend(self._lent.popleft() for _ in range(len(self._lent)))
        self._collect()
        assert ref.id not in self._held, "a block is taken once, and released once"
        memory = self._memory[ref.segment]
        array = (ctypes.c_ubyte * ref.length).from_buffer(memory, ref.offset)
        notify = weakref.ref(array, self._collect)
        # The later one is called first. It is C alone: a KeyboardInterrupt meanwhile loses no block.
        held = _Held(array, self._dead.append)
        held.memory, held.ref, held.is_dropped, held.notify, held.leases = memory, ref, False, notify, ()
        self._held[ref.id] = held
        return memoryview(array).cast("B")

    def live(self) -> int:
        """How many blocks are in use here."""
        return len(self._held)

    def close(self) -> None:
        """Forget all segments; what still uses them keeps them, and is not reported any more."""
        self._memory.clear()
        self._held.clear()
        self._dead.clear()
        self._lent.clear()

    @property
    def holds_any(self) -> bool:
        return bool(self._held)

    def lend(self, lease: Lease) -> None:
        for held in list(self._held.values()):
            held.leases = (*(each for each in held.leases if not each.is_over), lease)

    def _collect(self, _: object = None) -> None:
        with contextlib.suppress(IndexError):  # the deque is empty; asking first would race with other threads
            for held in iter(self._dead.popleft, None):  # no interrupt between the pop and the name, as above
                try:
                    self._give_back(held)
                except BaseException:
                    self._dead.append(held)
                    raise

    def _give_back(self, held: _Held) -> None:
        if held.leases and not all(lease.is_over for lease in held.leases):
            self._lent.append(held)
            self._held.pop(held.ref.id, None)  # children of later forks have nothing to see it by
            return
        if not held.is_dropped:
            held.memory.madvise(mmap.MADV_DONTNEED, held.ref.offset, held.ref.length)
            held.is_dropped = True  # never twice: after the report these pages may belong to another block
        self._on_release(held.ref.id)
        self._held.pop(held.ref.id, None)


def room_for(length: int) -> int:
    """The bytes a block takes for so many: whole pages, in steps of an eighth, so that sizes repeat."""
    pages = max(1, -(-length // mmap.PAGESIZE))
    step = 1 << max(0, pages.bit_length() - 4)
    return -(-pages // step) * step * mmap.PAGESIZE


def _pages(length: int) -> int:
    return length // mmap.PAGESIZE * mmap.PAGESIZE


def _map(fd: int, size: int, kind: int) -> mmap.mmap:
    if sys.version_info >= (3, 13):
        return mmap.mmap(fd, size, flags=kind, trackfd=False)  # before that, each map keeps a copy of the descriptor
    return mmap.mmap(fd, size, flags=kind)


def _mb(size: int) -> str:
    return f"{size / 2**20:,.1f} MB"
