"""What both ends of a zmq link are made of: a socket that any thread may use."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import zmq

from ..errors import LinkClosed
from .held import held_here
from .link import Buffer

END = b""
"""What the links themselves say: the first from a rank that it is there, any other that nothing follows."""

MEETINGS = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_DISCONNECTED
)
"""What is heard of a connection: that the other end has proved its key, has not, or is gone."""

# Plain numbers: to look up or to combine zmq's enums costs microseconds each time.
_EVENTS = int(zmq.EVENTS)
_POLLIN = int(zmq.POLLIN)
_DONTWAIT = int(zmq.DONTWAIT)


class GuardedSocket:
    """A zmq socket that any thread may use, one at a time.

    Its descriptor tells only once of input, and whatever is done with the socket may swallow that. So who sends looks
    whether there is input that nobody was told of, and then calls `on_pending`.
    """

    def __init__(self, socket: Any, on_pending: Callable[[], object]) -> None:
        self.raw = socket
        self.fd: int = socket.getsockopt(zmq.FD)
        self.is_closed = False
        self._on_pending = on_pending
        # Whether a `KeyboardInterrupt` may have left half a message: an empty frame ends it, and alone is nothing.
        self._is_torn = False
        self._is_told = False
        self._lock = threading.RLock()  # a zmq socket may move between threads, and must not be used by two
        self._is_in_use_here = held_here(self._lock)
        self._late: deque[Sequence[Buffer]] = deque()  # what a `__del__` has sent that the collector ran under the lock

    def bind(self, endpoint: str) -> str:
        """Listen at `endpoint`; what it is in full. Raises `OSError` where it cannot be had."""
        with self._lock:
            try:
                self.raw.bind(endpoint)
            except zmq.ZMQError as error:
                number = error.errno or errno.EINVAL
                raise OSError(number, f"{os.strerror(number)}: {endpoint}") from error
            return self.raw.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode()

    def send(self, *frames: Buffer) -> None:
        """Send one message. Raises `LinkClosed` when the one it is for is gone."""
        if self._is_in_use_here():
            self._late.append(frames)
            return
        with self._lock:
            self._send_whole(frames)
            if not self._is_told and self._has_input():
                self._on_pending()
                self._is_told = True
            if self._late:
                self._send_late()

    def _send_whole(self, frames: Sequence[Buffer]) -> None:
        if self.is_closed:
            raise LinkClosed("this end is closed")
        if self._is_torn:
            self._send(b"")
        self._is_torn = len(frames) > 1
        for frame in frames[:-1]:
            self._send(frame, zmq.SNDMORE)
        self._send(frames[-1])
        self._is_torn = False

    def _send_late(self) -> None:
        while self._late:
            with contextlib.suppress(LinkClosed):  # it is told elsewhere
                self._send_whole(self._late.popleft())

    def _send(self, frame: Buffer, flags: int = 0) -> None:
        try:
            self.raw.send(frame, flags | _DONTWAIT)
        except zmq.ZMQError as error:
            # Nothing is ever full here, so that a socket that would wait has nobody to send to: zmq has given up who
            # does not speak as it does.
            if error.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise LinkClosed("the other end is gone") from error
            raise

    def recv(self) -> list[Any] | None:
        """The frames of the next message that is there, or None."""
        with self._lock:
            frames = self._recv()
            if self._late:
                self._send_late()
            return frames

    def _recv(self) -> list[Any] | None:
        if self.is_closed:
            return None
        if not self._has_input():
            self._is_told = False
            return None
        frames = [self.raw.recv(_DONTWAIT, copy=False)]
        while frames[-1].more:
            frames.append(self.raw.recv(copy=False))
        return frames

    def _has_input(self) -> bool:
        """To ask costs 3 us, to try to receive and be told `Again` 16."""
        return bool(self.raw.getsockopt(_EVENTS) & _POLLIN)

    def close(self) -> None:
        with self._lock:
            self.is_closed = True
            self.raw.close(linger=0)


def configure(socket: Any, transport: str) -> None:
    """Options that both ends need, before the socket is bound or connected."""
    for option in (zmq.SNDHWM, zmq.RCVHWM, zmq.LINGER):
        socket.setsockopt(option, 0)
    if transport == "tcp":  # a host that is switched off says nothing; a process that ends is noticed at once
        socket.setsockopt(zmq.HEARTBEAT_IVL, 1000)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 15_000)
