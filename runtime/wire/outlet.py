"""Outlets: datagrams to one process, sent at once or kept in order while it does not read."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..errors import LinkClosed
from .codec import Encoded
from .lane import Lane, datagrams, pack
from .link import Buffer, NearLink
from .messages import AnyMessage
from .reactor import Reactor

_suppressed = contextlib.suppress(LinkClosed)  # reusable, and to make one costs as much as to send
_Datagram = tuple[Sequence[Buffer], Sequence[int]]


@dataclass(slots=True)
class Outlet:
    """The sending side of a lane that must never make its sender wait."""

    lane: Lane
    link: NearLink
    reactor: Reactor
    backlog: deque[_Datagram] = field(default_factory=deque[_Datagram])
    lock: threading.Lock = field(default_factory=threading.Lock)  # senders are on any thread

    def send(self, message: AnyMessage, payload: Encoded | None = None, fds: Sequence[int] = ()) -> None:
        """Send to this process alone. One that is gone is passed over: its end is told elsewhere."""
        self.post(pack(message, payload, self.lane.pool, [self.lane.peer]), fds)

    def post(self, parts: Sequence[Buffer], fds: Sequence[int] = ()) -> None:
        """Send what `pack` made, for this process among others."""
        with self.lock, _suppressed:
            for announcement, descriptors in self.lane.announcements():
                self._send(announcement, descriptors)
            for datagram in datagrams(parts, self.link.largest):
                self._send(datagram, fds)

    def _send(self, parts: Sequence[Buffer], fds: Sequence[int]) -> None:
        if self.backlog or not self.link.send_nowait(parts, fds):
            if not self.backlog:
                self.link.watch_writes(self.reactor, True)
            # Copies of the descriptors: until they go out, their owner may close them.
            self.backlog.append((parts, [os.dup(fd) for fd in fds]))

    def drain(self) -> None:
        """Send what was kept, as far as the other end takes it."""
        with self.lock, contextlib.suppress(LinkClosed):
            while self.backlog and self.link.send_nowait(*self.backlog[0]):
                for fd in self.backlog.popleft()[1]:
                    os.close(fd)
            if not self.backlog:
                self.link.watch_writes(self.reactor, False)

    def close(self) -> None:
        """Drop what was kept, and close the lane."""
        with self.lock:
            for _, fds in self.backlog:
                for fd in fds:
                    os.close(fd)
            self.backlog.clear()
        self.lane.close()
