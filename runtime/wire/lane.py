"""Lanes: messages with their frames over a link, large frames through shared memory.

A message is the length of a `Packet`, the packet, then the frames that travel inline. Where the link can pass
descriptors, a frame above `INLINE` bytes lies in a pool (`pool`) instead, copied once however many ranks get it.
A datagram is a message, or several small ones one behind the other; what is too large for one travels in pieces.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import struct
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

from .codec import Encoded
from .held import held_here
from .link import LARGEST, Buffer, Link
from .messages import AnyMessage, BlockRef, Dropped, Packet, Released, Segment, decoder
from .pool import Mapped, Pool
from .unicode import packed

INLINE = 32 * 1024
"""Frames of more bytes than this go through shared memory: below it, mapping and releasing costs more than copying."""

HOT = 256 << 20
"""Bytes of shared memory that a pool keeps for the next large frames when nothing uses it: fresh pages are dear."""

_HEADROOM = 16 * 1024

_TINY = 4096  # a block of shared memory is at least a page

_ABOUT_MEMORY = (Segment, Dropped, Released)

# Instead of a packet's length: this datagram is a piece, and more follow, or it is the last one.
_PIECE, _LAST_PIECE = 0xFFFFFFFE, 0xFFFFFFFF

_SIZE = struct.Struct("<I")  # of a packet
_NOTHING = memoryview(b"")

Frames = list[bytearray | memoryview]
Datagram = tuple[Sequence[Buffer], Sequence[int]]
"""The parts of one, and the descriptors that go with it."""


def pack(
    message: AnyMessage,
    payload: Encoded | None = None,
    pool: Pool | None = None,
    receivers: Iterable[Hashable] = (),
) -> list[Buffer]:
    """The parts of one datagram. With a pool the large frames are put there, for these receivers.

    Without one (a link that cannot pass descriptors), or in the midst of its use, everything is inline, whatever its
    size.
    """
    if payload is None:
        return [_head(Packet(message))]
    if not payload.buffers and len(payload.head) <= INLINE:  # nearly every message
        head = packed(Packet(message, (len(payload.head),)))
        return [_SIZE.pack(len(head)) + head + payload.head]
    frames: list[Buffer] = [payload.head, *payload.buffers]
    if pool is None or pool.is_in_use_here():
        head = _head(Packet(message, tuple(memoryview(f).nbytes for f in frames)))
        return [b"".join([head, *frames])]  # here, once for all receivers
    places = _place(frames, pool, tuple(receivers))
    inline = [frame for frame, place in zip(frames, places, strict=True) if isinstance(place, int)]
    return [b"".join([_head(Packet(message, places)), *inline])]


def _place(frames: Sequence[Buffer], pool: Pool, receivers: tuple[Hashable, ...]) -> tuple[int | BlockRef, ...]:
    """Put the large frames into the pool: where each lies, or its length where it travels inline."""
    limit = _inline_limit(frames)
    places: list[int | BlockRef] = []
    try:
        for frame in frames:
            size = memoryview(frame).nbytes
            places.append(pool.put(frame, receivers) if size > limit else size)
    except BaseException:
        # The message will not go out: nobody would ever release what was put for it.
        for block in (place.id for place in places if isinstance(place, BlockRef)):
            for receiver in receivers:
                pool.release(block, receiver)
        raise
    return tuple(places)


def _inline_limit(frames: Sequence[Buffer]) -> int:
    """The size up to which a frame travels inline, so that all that do fit into one datagram, if they are not tiny."""
    sizes = sorted(memoryview(f).nbytes for f in frames)
    room = LARGEST - _HEADROOM - 16 * len(sizes)
    limit = INLINE
    while limit > _TINY and sum(size for size in sizes if size <= limit) > room:
        limit //= 2
    return limit


def datagrams(parts: Sequence[Buffer], largest: int | None) -> Iterable[Sequence[Buffer]]:
    """What `pack` made, in datagrams that the link takes; nearly always it is one.

    Example:
        >>> [b"".join(parts)[4:] for parts in datagrams([b"abcd", b"efgh"], largest=7)]
        [b'abc', b'def', b'gh']
    """
    if largest is None:
        return (parts,)
    size = sum(memoryview(part).nbytes for part in parts)
    return (parts,) if size <= largest else _cut(parts, size, largest)


def _cut(parts: Sequence[Buffer], size: int, largest: int) -> Iterator[Sequence[Buffer]]:
    whole = memoryview(b"".join(parts))
    step = largest - 4
    for at in range(0, size, step):
        kind = _PIECE if at + step < size else _LAST_PIECE
        yield [_SIZE.pack(kind), whole[at : at + step]]


class _Unreadable:
    """Stands for what lies in shared memory that this process could not take in."""

    def __reduce__(self) -> Any:
        return _tell_unreadable, ()


def _tell_unreadable() -> None:
    why = f"{os.strerror(errno.EMFILE)}, or no memory, so nothing large can be received"
    raise OSError(errno.EMFILE, why)


_UNREADABLE = pickle.dumps(_Unreadable())


def _head(packet: Packet) -> bytes:
    head = packed(packet)
    return _SIZE.pack(len(head)) + head


class Lane:
    """One end of a lane: sends and receives messages, and looks after the shared memory both ends use.

    One thread receives. Any thread may send.
    """

    def __init__(self, link: Link, pool: Pool | None = None, peer: Hashable = 0) -> None:
        self.link = link
        self.pool = pool if link.carries_fds else None
        self.peer = peer
        self._mapped = Mapped(self._note_release) if link.carries_fds else None
        self._released: deque[int] = deque()
        self._missing: set[int] = set()  # segments that have been announced and are not here
        self._told = 0  # the pool's news when they were last looked at
        self._pieces: list[bytes] = []
        self.rest = _NOTHING
        """Of the last datagram, what `recv_nowait` has still to read: the link's descriptor knows nothing of it."""
        self.fds: list[int] = []
        """Descriptors that came with the last message that was received."""
        self.on_release: Callable[[], None] = lambda: None
        """Called, on any thread and from finalizers, when there is something for `send_releases` to send."""
        self._sending = threading.RLock()  # a segment's descriptor must go before the message that uses it
        self.is_sending_here = held_here(self._sending)
        """Has a signal handler, which asks, interrupted its own thread while that sends? Or does a `__del__` ask?"""
        self._late: deque[tuple[Sequence[Buffer], Sequence[int]]] = deque()  # what a `__del__` has sent meanwhile

    def send(self, message: AnyMessage, payload: Encoded | None = None, fds: Sequence[int] = ()) -> None:
        """Send to the other end; waits while it is slow."""
        self.send_parts(pack(message, payload, self.pool, (self.peer,)), fds)

    def send_anyway(self, message: AnyMessage, payload: Encoded) -> None:
        """The same for what is to arrive also where shared memory has no room for it: it is copied, in pieces."""
        try:
            self.send(message, payload)
        except MemoryError:
            self.send_parts(pack(message, payload))

    def send_parts(self, parts: Sequence[Buffer], fds: Sequence[int] = ()) -> None:
        """Send what `pack` made, after the descriptors of the shared memory it may refer to."""
        if self.is_sending_here():
            self._late.append((parts, fds))
            return
        with self._sending:
            self._send_whole(parts, fds)
            while self._late:
                self._send_whole(*self._late.popleft())

    def _send_whole(self, parts: Sequence[Buffer], fds: Sequence[int]) -> None:
        for datagram, cargo in self.outgoing(parts, fds):
            self.link.send(datagram, cargo)

    def outgoing(self, parts: Sequence[Buffer], fds: Sequence[int] = ()) -> Sequence[Datagram]:
        """What is to be sent, in order, for what `pack` made: nearly always that alone.

        Before it goes what tells the other end of new segments of shared memory, and of closed ones.
        """
        has_news = self.pool is not None and self._told != self.pool.news and not self.pool.is_in_use_here()
        if len(parts) == 1 and len(parts[0]) <= INLINE and not has_news:
            return ((parts, fds),)
        told = self._announcements(self.pool) if self.pool is not None and has_news else []
        *pieces, last = datagrams(parts, self.link.largest)
        return [*told, *((piece, ()) for piece in pieces), (last, fds)]

    def _announcements(self, pool: Pool) -> list[Datagram]:
        self._told = pool.news
        told: list[Datagram] = [
            ([_head(Packet(Segment(segment.id, segment.size)))], [segment.fd])
            for segment in pool.segments_for(self.peer)
        ]
        if closed := pool.closed_for(self.peer):
            told.append(([_head(Packet(Dropped(tuple(closed))))], []))
        return told

    def recv(self) -> tuple[AnyMessage, Frames]:
        """Wait for the next message that is not about shared memory."""
        while True:
            self.send_releases()
            received = self._open(self.rest, []) if self.rest else self._open(*self.link.recv())
            if received is not None:
                return received

    def recv_nowait(self) -> tuple[AnyMessage, Frames] | None:
        """The next message that has arrived, or None."""
        while True:
            if self.rest:
                received = self._open(self.rest, [])
            elif (datagram := self.link.recv_nowait()) is not None:
                received = self._open(*datagram)
            else:
                return None
            if received is not None:
                return received

    def _open(self, view: memoryview, fds: list[int]) -> tuple[AnyMessage, Frames] | None:
        """The first message of a datagram, or of what is left of one; None for a piece, and for news of memory."""
        (size,) = _SIZE.unpack_from(view)
        if size >= _PIECE:
            return self._add_piece(view, fds, is_last=size == _LAST_PIECE)
        at = 4 + size
        packet = decoder.decode(view[4:at])
        message = packet.message
        if not packet.frames and isinstance(message, _ABOUT_MEMORY):
            self.rest = view[at:]
            self._heed(message, fds)
            return None
        frames: Frames = []
        is_missing = False
        for place in packet.frames:
            if isinstance(place, int):
                # A copy of its own: the receive buffer is used again, and what is decoded from it must be writable.
                frames.append(bytearray(view[at : at + place]))
                at += place
            else:
                assert self._mapped is not None
                if place.segment in self._missing:
                    self._note_release(place.id)
                    is_missing = True
                else:
                    frames.append(memoryview(self._mapped.take(place)))
        self.rest = view[at:] if at < len(view) else _NOTHING
        self.fds = fds
        return message, [bytearray(_UNREADABLE)] if is_missing else frames

    def _add_piece(self, view: memoryview, fds: list[int], *, is_last: bool) -> tuple[AnyMessage, Frames] | None:
        self._pieces.append(bytes(view[4:]))
        self.rest = view[:0]
        if not is_last:
            return None
        whole = memoryview(b"".join(self._pieces))
        self._pieces.clear()
        return self._open(whole, fds)

    def _heed(self, message: Segment | Dropped | Released, fds: list[int]) -> None:
        """News of the shared memory."""
        if isinstance(message, Released):
            assert self.pool is not None
            for block in message.blocks:
                self.pool.release(block, self.peer)
            for segment in message.unknown:
                self.pool.announce_again(self.peer, segment)
            if not self.pool.has_blocks:
                self.pool.trim(keep=HOT)
            return
        assert self._mapped is not None
        if isinstance(message, Segment):
            try:
                if not fds:  # the system has left it out
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
                self._mapped.add(message.id, fds[0], message.size)
                self._missing.discard(message.id)
            except OSError:  # who reads what lies there is told
                self._missing.add(message.id)
        else:
            for segment in message.segments:
                self._missing.discard(segment)
                self._mapped.drop(segment)

    def _note_release(self, block: int) -> None:
        self._released.append(block)
        self.on_release()

    def send_releases(self) -> None:
        """Tell the other end which of its blocks are free again."""
        if not self._released:
            return
        blocks: list[int] = []
        with contextlib.suppress(IndexError):  # it is empty; asking first would race with other threads that send
            while True:
                blocks.append(self._released.popleft())
        if blocks:
            self.send(Released(tuple(blocks), tuple(self._missing)))

    def close(self) -> None:
        """Close the link. What was received through shared memory stays valid."""
        self.link.close()
        if self._mapped is not None:
            self._mapped.close()
