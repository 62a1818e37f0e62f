"""The zmq link: at the rank's end of each lane a DEALER (here), at the controller one ROUTER for all lanes (`zmq_hub`).

For systems without SEQPACKET, and between hosts. Over `ipc` the socket file lies in a private folder, and is gone as
soon as all ranks are there. Over `tcp` both ends prove who they are with CurveZMQ keys that the rank got with its spec,
so that a stranger can neither read nor send. An identity of 16 secret random bytes tells the lanes apart.

A datagram is one zmq frame. What the links say themselves is empty: the first message of a rank says that it is there,
a later one (from the controller of two frames) that nothing follows. Who hears that answers it, and a rank waits for
the answer before it exits: zmq would otherwise lose last words (libzmq#4660), as it would with a high-water mark, which
is why there is none and `send` never has to wait. A process that was killed says nothing: the controller hears of it
from who started it.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Sequence
from typing import Any, cast

import zmq
from zmq.utils.monitor import recv_monitor_message  # pyright: ignore[reportUnknownVariableType]

from ..errors import LinkClosed
from .link import Address, Buffer
from .zmq_socket import END, MEETINGS, GuardedSocket, configure

HANDSHAKE = 30.0
"""Seconds in which the controller must have accepted a rank."""

LAST_WORDS = 5.0
"""Seconds for which a rank that leaves waits until the controller has heard all it said."""


class ZmqLink:
    """A rank's end of a lane. One thread receives, and only that one may close; any thread may send.

    Raises:
        LinkClosed: the controller was not there, or did not accept the key, in `timeout` seconds.
    """

    carries_fds = False
    is_level_triggered = False
    largest: int | None = None

    def __init__(self, address: Address, timeout: float = HANDSHAKE) -> None:
        transport = address.endpoint.partition(":")[0]
        self._context: Any = zmq.Context()
        dealer = self._context.socket(zmq.DEALER)
        configure(dealer, transport)
        dealer.setsockopt(zmq.ROUTING_ID, address.id)
        if address.server_key:
            dealer.setsockopt(zmq.CURVE_SERVERKEY, address.server_key)
            dealer.setsockopt(zmq.CURVE_PUBLICKEY, address.public_key)
            dealer.setsockopt(zmq.CURVE_SECRETKEY, address.secret_key)
        self._monitor: Any = dealer.get_monitor_socket(MEETINGS)
        self._bell, self._bell_in = os.pipe()
        for fd in (self._bell, self._bell_in):
            os.set_blocking(fd, False)
        self._socket = GuardedSocket(dealer, self._ring)
        self._poll = select.poll()
        self._fds = self._socket.fd, self._monitor.getsockopt(zmq.FD), self._bell
        for fd in self._fds:
            self._poll.register(fd, select.POLLIN)
        self._giving_up = threading.Lock()  # another thread must not ring when the bell's number may be a stranger's
        self._is_there = False
        self._is_over = False
        dealer.connect(address.endpoint)
        try:
            self._wait_there(address.endpoint, timeout)
            self._socket.send(END)
        except BaseException:
            self._free()
            raise

    def _wait_there(self, endpoint: str, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not self._is_there:
            left = int(1000 * (deadline - time.monotonic()))
            if self._is_over:
                raise LinkClosed(f"who listens at {endpoint} did not accept this process")
            if left <= 0:
                raise LinkClosed(f"nobody has answered at {endpoint} within {timeout:g} s")
            if self._monitor.poll(left):
                self._watch_connection()

    def fileno(self) -> int:
        return self._socket.fd

    def filenos(self) -> Sequence[int]:
        return self._fds

    def send(self, parts: Sequence[Buffer], fds: Sequence[int] = ()) -> None:
        assert not fds, "a zmq link carries no descriptors"
        if self._is_over:
            raise LinkClosed("the other end is gone")
        self._socket.send(b"".join(parts))

    def send_nowait(self, parts: Sequence[Buffer], fds: Sequence[int] = ()) -> bool:
        self.send(parts, fds)
        return True

    def recv(self) -> tuple[memoryview, list[int]]:
        while (datagram := self._take()) is None:
            self._wait()
        return datagram

    def recv_nowait(self) -> tuple[memoryview, list[int]] | None:
        datagram = self._take()
        if datagram is None:
            self._wait(0)
            datagram = self._take()
        return datagram

    def _take(self) -> tuple[memoryview, list[int]] | None:
        while (frames := self._socket.recv()) is not None:
            data = frames[0].buffer
            if data.nbytes:
                return data, []
            self._is_over = self._is_over or len(frames) > 1  # one alone is the rest of a send that was interrupted
        if self._socket.is_closed:
            raise LinkClosed("this end is closed")
        if self._is_over:
            raise LinkClosed("the other end is gone")
        return None

    def _wait(self, timeout: float | None = None) -> None:
        """Wait until something may have come: a datagram, the end of the connection, a call of the bell."""
        for fd, _ in self._poll.poll(None if timeout is None else max(0.0, timeout * 1000)):
            if fd == self._bell:
                os.read(self._bell, 4096)
            elif fd != self._socket.fd:
                self._watch_connection()

    def _watch_connection(self) -> None:
        while self._monitor.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            seen: dict[str, Any] = cast("Any", recv_monitor_message)(self._monitor)
            if seen["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._is_there = True
            else:  # zmq would connect again by itself, but what was under way is lost: a link is never mended
                self._is_over = True

    def give_up(self) -> None:
        """Take the other end for gone; on any thread."""
        with self._giving_up:
            self._is_over = True
            if not self._socket.is_closed:
                self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full of rings that nobody has heard yet
            os.write(self._bell_in, b".")

    def close(self) -> None:
        """Say that nothing follows and wait, a while, until the controller has heard it; then close."""
        if self._socket.is_closed:
            return
        deadline = time.monotonic() + LAST_WORDS
        with contextlib.suppress(LinkClosed):
            if not self._is_over:
                self._socket.send(END)
            while time.monotonic() < deadline:
                if self._take() is None:
                    self._wait(deadline - time.monotonic())
        self._free()

    def _free(self) -> None:
        with self._giving_up:
            self._is_over = True
            self._socket.raw.disable_monitor()
            self._socket.close()
        self._monitor.close(linger=0)
        self._context.term()
        os.close(self._bell)
        os.close(self._bell_in)
