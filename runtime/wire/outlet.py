"""Outlets: datagrams to one process, sent at once or kept in order while it does not read.

Small messages to a process that has plenty to do may share a datagram: half of what a call costs while many are in
flight is system calls, one for each message at each end.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..errors import LinkClosed
from .codec import Encoded
from .held import held_here
from .lane import Datagram, Lane, pack
from .link import Buffer, NearLink
from .messages import AnyMessage
from .reactor import Reactor

MOST_TOGETHER = 16
"""So many messages share a datagram at most."""

_SMALL = 2048
"""Bytes of a message that may share one."""


def owned(payload: Encoded) -> Encoded:
    """What can wait to be sent: until then the sender may write to the memory that its buffers are views of."""
    if not payload.buffers:
        return payload
    return Encoded(payload.head, [memoryview(bytearray(buffer)) for buffer in payload.buffers])


@dataclass(slots=True)
class Outlet:
    """The sending side of a lane that must never make its sender wait."""

    lane: Lane
    link: NearLink
    reactor: Reactor
    backlog: deque[Datagram] = field(default_factory=deque[Datagram])
    lock: threading.RLock = field(default_factory=threading.RLock)  # senders are on any thread
    _is_sending_here: Callable[[], bool] = field(init=False)
    _together: list[Buffer] = field(default_factory=list[Buffer])

    def __post_init__(self) -> None:
        self._is_sending_here = held_here(self.lock)

    def send(self, message: AnyMessage, payload: Encoded | None = None, fds: Sequence[int] = ()) -> None:
        """Send to this process alone. One that is gone is passed over: its end is told elsewhere."""
        self.post(pack(message, payload, self.lane.pool, [self.lane.peer]), fds)

    def post(self, parts: Sequence[Buffer], fds: Sequence[int] = ()) -> None:
        """Send what `pack` made, for this process among others."""
        if self._is_sending_here():  # a `__del__` sends: after what it was run in the midst of
            self.reactor.schedule(lambda: self.post(parts, fds))
            return
        with self.lock:
            if self._together:
                self._send_together()
            self._send(parts, fds)

    def post_soon(self, parts: Sequence[Buffer]) -> None:
        """The same for a message that may wait for the next ones: until there are many, or the loop comes round."""
        if len(parts) > 1 or len(parts[0]) > _SMALL or self._is_sending_here():
            self.post(parts)
            return
        with self.lock:
            self._together.append(parts[0])
            if len(self._together) == 1:
                self.reactor.schedule(self.flush)
            elif len(self._together) >= MOST_TOGETHER:
                self._send_together()

    def flush(self) -> None:
        """Send what waits for the next messages."""
        with self.lock:
            if self._together:
                self._send_together()

    def _send_together(self) -> None:
        parts, self._together = self._together, []
        self._send([b"".join(parts)], ())

    def _send(self, parts: Sequence[Buffer], fds: Sequence[int]) -> None:
        try:
            for datagram, cargo in self.lane.outgoing(parts, fds):
                if self.backlog or not self.link.send_nowait(datagram, cargo):
                    self._keep(datagram, cargo)
        except LinkClosed:
            # That the process has ended will be told elsewhere. It may have been already, before this was packed.
            if self.lane.pool is not None and not self.lane.pool.is_in_use_here():
                self.lane.pool.forget(self.lane.peer)

    def _keep(self, datagram: Sequence[Buffer], fds: Sequence[int]) -> None:
        if not self.backlog:
            self.link.watch_writes(self.reactor, True)
        # Copies of the descriptors: until they go out, their owner may close them.
        self.backlog.append((datagram, [os.dup(fd) for fd in fds]))

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
            self._together.clear()
        self.lane.close()
