"""The in-memory link: two queues and two pipes as bells, for the in-process engine and fast tests."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..errors import LinkClosed
from .link import Buffer

if TYPE_CHECKING:
    from .reactor import Reactor


_BELL = 16
"""Bytes that are read of it: more than one, should an interrupt have struck between a ring and its datagram."""


class _Box:
    """Datagrams on their way in one direction, with a pipe that is readable while there are some or the sender left."""

    def __init__(self, limit: int) -> None:
        self.items: deque[Buffer] = deque()
        self.limit = limit
        # Held by its own `with`: an interrupt may strike in that of a condition, which is Python, and leave it held.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self.is_closed = False
        self.readable, self._bell = os.pipe()
        os.set_blocking(self.readable, False)

    def put(self, data: Buffer, wait: bool) -> bool:
        with self._lock:
            while len(self.items) >= self.limit and not self.is_closed:
                if not wait:
                    return False
                self._changed.wait()
            if self.is_closed:
                raise LinkClosed("the other end is gone")
            if not self.items:  # one byte is enough for all: a pipe that is full would make who puts wait
                os.write(self._bell, b".")
            self.items.append(data)
            self._changed.notify_all()
            return True

    def take(self, wait: bool) -> Buffer | None:
        with self._lock:
            while not self.items:
                if self.is_closed:
                    raise LinkClosed("the other end is gone")
                if not wait:
                    return None
                self._changed.wait()
            data = self.items.popleft()
            if not self.items:
                os.read(self.readable, _BELL)
            self._changed.notify_all()
            return data

    def close(self) -> None:
        with self._lock:
            if not self.is_closed:
                self.is_closed = True
                os.close(self._bell)  # end-of-file makes the reading end readable for good
                self._changed.notify_all()


class InprocLink:
    """One end of an in-memory link; `make()` gives both."""

    carries_fds = False
    is_level_triggered = True
    largest: int | None = None

    def __init__(self, inbox: _Box, outbox: _Box) -> None:
        self._inbox, self._outbox = inbox, outbox
        self._is_closed = False

    @classmethod
    def make(cls, limit: int = 1024) -> tuple[InprocLink, InprocLink]:
        """Both ends; a sender waits when `limit` datagrams are on their way."""
        one, two = _Box(limit), _Box(limit)
        return cls(one, two), cls(two, one)

    def fileno(self) -> int:
        return self._inbox.readable

    def filenos(self) -> Sequence[int]:
        return (self.fileno(),)

    def watch(self, reactor: Reactor, on_ready: Callable[[], object]) -> None:
        reactor.add(self.fileno(), on_ready)

    def unwatch(self, reactor: Reactor) -> None:
        reactor.remove(self.fileno())

    def watch_writes(self, reactor: Reactor, on: bool) -> None:
        """A queue has no descriptor that tells of room: where nobody may wait, make it without a limit."""

    def send(self, parts: Sequence[Buffer], fds: Sequence[int] = ()) -> None:
        assert not fds, "an in-memory link carries no descriptors"
        self._outbox.put(b"".join(parts), wait=True)

    def send_nowait(self, parts: Sequence[Buffer], fds: Sequence[int] = ()) -> bool:
        assert not fds, "an in-memory link carries no descriptors"
        return self._outbox.put(b"".join(parts), wait=False)

    def recv(self) -> tuple[memoryview, list[int]]:
        data = self._inbox.take(wait=True)
        assert data is not None
        return memoryview(data), []

    def recv_nowait(self) -> tuple[memoryview, list[int]] | None:
        data = self._inbox.take(wait=False)
        return None if data is None else (memoryview(data), [])

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._outbox.close()
            self._inbox.close()
            os.close(self._inbox.readable)
