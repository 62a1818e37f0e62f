"""The zmq link: at the controller one ROUTER for all lanes of a crew, at the rank's end of each lane a DEALER.

For systems without SEQPACKET, and between hosts. Over `ipc` the socket file lies in a private folder, and is gone as
soon as all ranks are there. Over `tcp` both ends prove who they are with CurveZMQ keys that the rank got with its spec,
so that a stranger can neither read nor send. An identity of 16 secret random bytes tells the lanes apart.

A datagram is one zmq frame. An empty one is the link's own: the first from a rank says that it is there, a later one,
from either end, that nothing follows. Who hears the end answers it, and a rank waits for that before it exits: zmq
would otherwise lose last words (libzmq#4660), as it would with a high-water mark, which is why there is none and
`send` never has to wait. A process that was killed says nothing: the controller hears of it from who started it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import zmq
import zmq.backend
from zmq.utils.monitor import recv_monitor_message

from ..errors import LinkClosed
from .link import Address, Buffer, FarEnd
from .reactor import Reactor

_END = b""
_ZAP = "inproc://zeromq.zap.01"
_LONGEST_PATH = 80
"""Bytes of the folder of a socket: the whole path must stay below 104 on macOS, 108 on Linux."""

_TURN = 64
"""Datagrams that are taken in before others of the loop get their turn."""

HANDSHAKE = 30.0
"""Seconds in which the controller must have accepted a rank."""

LAST_WORDS = 5.0
"""Seconds for which a rank that leaves waits until the controller has heard all it said."""


class _Guarded:
    """A zmq socket that any thread may use, one at a time.

    Its descriptor tells only once of input, and whatever is done with the socket may swallow that. So who sends looks
    whether there is input that nobody was told of, and then calls `on_pending`.
    """

    def __init__(self, socket: Any, on_pending: Callable[[], object]) -> None:
        self.raw = socket
        self.is_closed = False
        self._on_pending = on_pending
        self._send = partial(zmq.backend.Socket.send, socket)
        self._is_told = False
        self._lock = threading.Lock()  # a zmq socket may move between threads, and must not be used by two

    def fileno(self) -> int:
        return self.raw.getsockopt(zmq.FD)

    def bind(self, endpoint: str) -> str:
        """Listen at `endpoint`; what it is in full."""
        with self._lock:
            self.raw.bind(endpoint)
            return self.raw.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode()

    def send(self, *frames: Buffer) -> None:
        """Send one message. Raises `LinkClosed` when the one it is for is gone."""
        with self._lock:
            if self.is_closed:
                raise LinkClosed("this end is closed")
            flags = [zmq.SNDMORE] * (len(frames) - 1) + [0]
            try:
                # No bytecode runs between the frames, and so no signal handler: half a message, left by a
                # KeyboardInterrupt, would swallow the next.
                deque(map(self._send, frames, flags), maxlen=0)
            except zmq.ZMQError as error:
                if error.errno == zmq.EHOSTUNREACH:
                    raise LinkClosed("the other end is gone") from error
                raise
            if not self._is_told and self.raw.getsockopt(zmq.EVENTS) & zmq.POLLIN:
                self._on_pending()
                self._is_told = True

    def recv(self) -> list[Any] | None:
        """The frames of the next message that is there, or None."""
        with self._lock:
            if self.is_closed:
                return None
            try:
                frames = [self.raw.recv(zmq.DONTWAIT, copy=False)]
            except zmq.Again:
                self._is_told = False
                return None
            while frames[-1].more:
                frames.append(self.raw.recv(copy=False))
            return frames

    def close(self) -> None:
        with self._lock:
            self.is_closed = True
            self.raw.close(linger=0)


def _configure(socket: Any, transport: str) -> None:
    for option in (zmq.SNDHWM, zmq.RCVHWM, zmq.LINGER):
        socket.setsockopt(option, 0)
    if transport == "tcp":  # a host that is switched off says nothing; a process that ends is noticed at once
        socket.setsockopt(zmq.HEARTBEAT_IVL, 1000)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 15_000)


class ZmqHub:
    """The controller's side of all zmq links of one crew.

    It is read by the loop of `reactor`. `transport` is `ipc` or `tcp`; with tcp it listens on `host`.
    """

    carries_fds = False

    def __init__(
        self, reactor: Reactor, transport: Literal["ipc", "tcp"] = "ipc", host: str = "127.0.0.1"
    ) -> None:
        self._reactor = reactor
        self._transport = transport
        self._host = host
        self._links: dict[bytes, HubLink] = {}
        self._absent: set[bytes] = set()  # identities of ranks that have not come yet
        self._is_sealed = False
        self._endpoint = ""
        self._folder: Path | None = None
        self._context: Any = zmq.Context()
        self._doorman = _Doorman(self._context, reactor) if transport == "tcp" else None
        router = self._context.socket(zmq.ROUTER)
        _configure(router, transport)
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        router.setsockopt(zmq.BACKLOG, 4096)
        if self._doorman is not None:
            self._doorman.guard(router)
        self._socket = _Guarded(router, lambda: reactor.schedule(self.pump))
        reactor.add(self._socket.fileno(), self.pump)

    def open(self) -> tuple[HubLink, FarEnd]:
        """A link, and the address that its rank must be given, and nobody else."""
        if not self._endpoint:
            self._endpoint = self._listen()
        id = b"\1" + secrets.token_bytes(16)  # an identity must not begin with a zero byte
        keys = self._doorman.admit() if self._doorman is not None else (b"", b"", b"")
        link = self._links[id] = HubLink(self, id)
        self._absent.add(id)
        self._is_sealed = False
        return link, FarEnd(address=Address(self._endpoint, id, *keys))

    def seal(self) -> None:
        """No more links for now: when all ranks are there, the name they came by goes away."""
        self._is_sealed = True
        self._hide_if_done()

    def pump(self) -> None:
        """Take in what has arrived, and tell the links; on the thread that runs the loop."""
        told: dict[HubLink, None] = {}
        for _ in range(_TURN):
            frames = self._socket.recv()
            if frames is None:
                break
            link = self._links.get(frames[0].bytes)
            if link is not None and len(frames) == 2:  # else a stranger, or a lane that was closed here
                link.take(frames[1].buffer)
                told[link] = None
        else:
            self._reactor.schedule(self.pump)
        for link in told:
            link.on_ready()

    def close(self) -> None:
        """Close all links, and leave no file behind."""
        if not self._socket.is_closed:
            self._reactor.remove(self._socket.fileno())
            self._socket.close()
            if self._doorman is not None:
                self._doorman.close()
            self._context.term()
            self._hide()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, id: bytes, data: Buffer) -> None:
        """Send to the rank that has come by this identity."""
        self._socket.send(id, data)

    def note_there(self, id: bytes) -> None:
        self._absent.discard(id)
        self._hide_if_done()

    def forget(self, id: bytes) -> None:
        """Hear nothing more from this identity."""
        self._links.pop(id, None)
        self.note_there(id)

    def _listen(self) -> str:
        if self._transport == "tcp":
            return self._socket.bind(f"tcp://{self._host}:*")
        self._folder = _private_folder()
        return self._socket.bind(f"ipc://{self._folder}/crew")

    def _hide_if_done(self) -> None:
        if self._is_sealed and not self._absent and self._transport == "ipc":
            self._hide()

    def _hide(self) -> None:
        """Take the socket's name out of the file system; those who are connected stay so."""
        folder, self._folder, self._endpoint = self._folder, None, ""
        if folder is not None:
            with contextlib.suppress(FileNotFoundError):  # zmq has removed it when it closed
                (folder / "crew").unlink()
            folder.rmdir()


def _private_folder() -> Path:
    """A new folder that only this user may enter."""
    parents = [os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp"]
    fitting = [p for p in parents if p and len(os.fsencode(p)) < _LONGEST_PATH and os.access(p, os.W_OK | os.X_OK)]
    return Path(tempfile.mkdtemp(prefix="meshbook-", dir=fitting[0] if fitting else None))


class _Doorman:
    """Lets into a socket whoever holds a key that was made here (ZAP, https://rfc.zeromq.org/spec/27/)."""

    def __init__(self, context: Any, reactor: Reactor) -> None:
        self._reactor = reactor
        self._public, self._secret = zmq.curve_keypair()
        self._admitted: set[bytes] = set()
        self._socket = context.socket(zmq.REP)
        self._socket.bind(_ZAP)
        self._fd = self._socket.getsockopt(zmq.FD)
        reactor.add(self._fd, self._answer)

    def guard(self, socket: Any) -> None:
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self._secret)
        socket.setsockopt(zmq.ZAP_DOMAIN, b"meshbook")  # without a domain zmq admits all when nobody answers

    def admit(self) -> tuple[bytes, bytes, bytes]:
        """The server's key, and a new pair of keys that is let in."""
        public, secret = zmq.curve_keypair()
        self._admitted.add(public)
        return self._public, public, secret

    def _answer(self) -> None:
        while True:
            try:
                version, request, _, _, _, mechanism, *credentials = self._socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            known = mechanism == b"CURVE" and zmq.utils.z85.encode(credentials[0]) in self._admitted
            verdict = (b"200", b"OK") if known else (b"400", b"unknown key")
            self._socket.send_multipart([version, request, *verdict, b"", b""])

    def close(self) -> None:
        self._reactor.remove(self._fd)
        self._socket.close(linger=0)


class HubLink:
    """The controller's end of a lane. What is sent before the rank has come waits for it."""

    carries_fds = False
    largest = None

    def __init__(self, hub: ZmqHub, id: bytes) -> None:
        self.on_ready: Callable[[], object] = lambda: None
        self._hub = hub
        self._id = id
        self._inbox: deque[memoryview] = deque()
        self._arrived = threading.Condition()  # of `_inbox`, for `recv` on a thread that does not run the loop
        self._unsent: list[bytes] | None = []  # None: the rank is there
        self._sending = threading.Lock()  # what waited must go before what is sent now
        self._trouble = ""

    def fileno(self) -> int:
        return self._hub.fileno()

    def watch(self, reactor: Reactor, on_ready: Callable[[], object]) -> None:
        self.on_ready = on_ready

    def unwatch(self, reactor: Reactor) -> None:
        self.on_ready = lambda: None

    def watch_writes(self, reactor: Reactor, on: bool) -> None:
        """There is nothing to watch: `send_nowait` never refuses."""

    def send(self, parts: Sequence[Buffer], fds: Sequence[int] = ()) -> None:
        assert not fds, "a zmq link carries no descriptors"
        data = b"".join(parts)
        with self._sending:
            if self._trouble:
                raise LinkClosed(self._trouble)
            if self._unsent is not None:
                self._unsent.append(data)
            else:
                self._hub.send(self._id, data)

    def send_nowait(self, parts: Sequence[Buffer], fds: Sequence[int] = ()) -> bool:
        self.send(parts, fds)
        return True

    def recv(self) -> tuple[memoryview, list[int]]:
        with self._arrived:
            while (datagram := self.recv_nowait()) is None:
                self._arrived.wait()
            return datagram

    def recv_nowait(self) -> tuple[memoryview, list[int]] | None:
        if self._inbox:
            return self._inbox.popleft(), []
        if self._trouble:
            raise LinkClosed(self._trouble)
        return None

    def take(self, data: memoryview) -> None:
        """Something came from the rank; called by the hub."""
        if self._unsent is not None:
            self._welcome()
        elif data.nbytes == 0:
            self._end("the other end is gone")
        else:
            with self._arrived:
                self._inbox.append(data)
                self._arrived.notify()

    def _welcome(self) -> None:
        with self._sending, contextlib.suppress(LinkClosed):  # it came and went
            unsent, self._unsent = self._unsent, None
            for data in unsent or ():
                self._hub.send(self._id, data)
        self._hub.note_there(self._id)

    def _end(self, why: str) -> None:
        with self._sending, contextlib.suppress(LinkClosed):
            if not self._trouble:
                self._trouble = why
                if self._unsent is None:
                    self._hub.send(self._id, _END)
        with self._arrived:
            self._arrived.notify_all()

    def close(self) -> None:
        self._end("this end is closed")
        self._hub.forget(self._id)


_EVENTS = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_DISCONNECTED
)


class ZmqLink:
    """A rank's end of a lane. One thread receives, and only that one may close; any thread may send.

    Raises:
        LinkClosed: the controller was not there, or did not accept the key, in `timeout` seconds.
    """

    carries_fds = False
    largest = None

    def __init__(self, address: Address, timeout: float = HANDSHAKE) -> None:
        transport = address.endpoint.partition(":")[0]
        self._context: Any = zmq.Context()
        dealer = self._context.socket(zmq.DEALER)
        _configure(dealer, transport)
        dealer.setsockopt(zmq.ROUTING_ID, address.id)
        if address.server_key:
            dealer.setsockopt(zmq.CURVE_SERVERKEY, address.server_key)
            dealer.setsockopt(zmq.CURVE_PUBLICKEY, address.public_key)
            dealer.setsockopt(zmq.CURVE_SECRETKEY, address.secret_key)
        self._monitor: Any = dealer.get_monitor_socket(_EVENTS)
        self._bell, self._bell_in = os.pipe()
        for fd in (self._bell, self._bell_in):
            os.set_blocking(fd, False)
        self._socket = _Guarded(dealer, self._ring)
        self._poll = select.poll()
        for fd in (self._socket.fileno(), self._monitor.getsockopt(zmq.FD), self._bell):
            self._poll.register(fd, select.POLLIN)
        self._is_there = self._is_over = False
        dealer.connect(address.endpoint)
        try:
            self._wait_there(timeout)
            self._socket.send(_END)
        except BaseException:
            self._free()
            raise

    def _wait_there(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not self._is_there:
            if self._is_over or time.monotonic() > deadline:
                raise LinkClosed("the controller did not accept this rank")
            self._wait(deadline - time.monotonic())

    def fileno(self) -> int:
        return self._socket.fileno()

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
            self._is_over = True
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
            elif fd != self._socket.fileno():
                self._watch_connection()

    def _watch_connection(self) -> None:
        while self._monitor.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            event = recv_monitor_message(self._monitor)["event"]
            self._is_there = self._is_there or event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            # zmq would connect again by itself, but what was under way is lost: a link is never mended.
            self._is_over = self._is_over or event != zmq.EVENT_HANDSHAKE_SUCCEEDED

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
                self._socket.send(_END)
            while time.monotonic() < deadline:
                if self._take() is None:
                    self._wait(deadline - time.monotonic())
        self._free()

    def _free(self) -> None:
        self._is_over = True
        self._socket.raw.disable_monitor()
        self._socket.close()
        self._monitor.close(linger=0)
        self._context.term()
        os.close(self._bell)
        os.close(self._bell_in)
