"""The controller's end of zmq links (see `zmq_link`): one socket for all lanes of a crew, watched by the loop."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import zmq

from ..errors import LinkClosed
from .link import Address, Buffer, FarEnd, NearLink
from .reactor import Reactor, contained
from .zmq_door import Door, Keys
from .zmq_socket import END, GuardedSocket, configure

_LONGEST_PATH = 80
"""Bytes of the folder of a socket: the whole path must stay below 104 on macOS, 108 on Linux."""

_TURN = 64
"""Datagrams that are taken in before others of the loop get their turn."""


class ZmqHub:
    """The controller's side of all zmq links of one crew.

    It is read by the loop of `reactor`. `transport` is `ipc` or `tcp`; with tcp it listens on `host`, by default at any
    free `port`, and proves by `keys` who it is, by default new ones.
    """

    carries_fds = False

    def __init__(
        self,
        reactor: Reactor,
        transport: Literal["ipc", "tcp"] = "ipc",
        host: str = "127.0.0.1",
        port: int = 0,
        keys: Keys | None = None,
    ) -> None:
        self._reactor = reactor
        self._transport = transport
        self._host = host
        self._port = port
        self._links: dict[bytes, HubLink] = {}
        self._absent: set[bytes] = set()  # identities of ranks that have not come yet
        self._is_sealed = False
        self._has_hidden = False
        self._naming = threading.Lock()  # ranks come on the loop while more links are opened on another thread
        self._endpoint = ""
        self._folder: Path | None = None
        self._context: Any = zmq.Context()
        self._door = Door(self._context, reactor, keys) if transport == "tcp" else None
        router = self._context.socket(zmq.ROUTER)
        configure(router, transport)
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        router.setsockopt(zmq.BACKLOG, 4096)
        if self._door is not None:
            self._door.guard(router)
        self._socket = GuardedSocket(router, lambda: reactor.schedule(self.pump))
        reactor.add(self._socket.fd, self.pump)

    @property
    def keys(self) -> Keys:
        """Those of this end of a tcp link."""
        assert self._door is not None
        return self._door.keys

    @property
    def port(self) -> int:
        """Where it listens, when there are links."""
        return int(self._endpoint.rpartition(":")[2])

    def open(self, known: Address | None = None) -> tuple[NearLink, FarEnd]:
        """A link, and the address that its rank must be given, and nobody else.

        With `known`, who was given that address is to come again. Raises `OSError` where the port is taken.
        """
        with self._naming:
            if not self._endpoint:
                self._endpoint = self._listen()
            endpoint = self._endpoint
            # An identity must not begin with a zero byte.
            id = known.id if known is not None else b"\1" + secrets.token_bytes(16)
            self._absent.add(id)
            self._is_sealed = False
        link = self._links[id] = HubLink(self, id)
        if self._door is None:
            return link, FarEnd(address=Address(endpoint, id))
        theirs = self._door.admit(Keys(known.public_key, known.secret_key) if known is not None else None)
        return link, FarEnd(address=Address(endpoint, id, self._door.keys.public, *theirs))

    def seal(self) -> None:
        """No more links for now: when all ranks are there, the name they came by goes away."""
        with self._naming:
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
            contained(link.on_ready)  # one that raises must not silence the others: no descriptor tells of them again

    def close(self) -> None:
        """Close all links, and leave no file behind."""
        if not self._socket.is_closed:
            self._reactor.remove(self._socket.fd)
            self._socket.close()
            if self._door is not None:
                self._door.close()
            self._context.term()
            self._hide()

    def fileno(self) -> int:
        return self._socket.fd

    def send(self, id: bytes, data: Buffer) -> None:
        """Send a datagram to the rank that has come by this identity, or `END`."""
        if len(data):
            self._socket.send(id, data)
        else:
            self._socket.send(id, END, END)

    def note_there(self, id: bytes) -> None:
        """This rank has come, or nobody waits for it any more."""
        with self._naming:
            self._absent.discard(id)
            self._hide_if_done()

    def forget(self, id: bytes) -> None:
        """Hear nothing more from this identity."""
        self._links.pop(id, None)

    def _listen(self) -> str:
        if self._transport == "tcp":
            return self._socket.bind(f"tcp://{self._host}:{self._port or '*'}")
        self._folder = _private_folder()
        return self._socket.bind(f"ipc://{self._folder}/crew")

    def _hide_if_done(self) -> None:
        # Once: zmq listens on where it has no name, until it closes, and would at another place after each restart.
        if self._is_sealed and not self._absent and self._transport == "ipc" and not self._has_hidden:
            self._hide()

    def _hide(self) -> None:
        """Take the socket's name out of the file system; those who are connected stay so."""
        folder, self._folder, self._endpoint = self._folder, None, ""
        if folder is not None:
            self._has_hidden = True
            with contextlib.suppress(FileNotFoundError):  # zmq has removed it
                (folder / "crew").unlink()
            with contextlib.suppress(OSError):  # somebody has cleared the folder of temporary files
                folder.rmdir()


def _private_folder() -> Path:
    """A new folder that only this user may enter."""
    parents = [os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp"]
    fitting = [p for p in parents if p and len(os.fsencode(p)) < _LONGEST_PATH and os.access(p, os.W_OK | os.X_OK)]
    return Path(tempfile.mkdtemp(prefix="meshbook-", dir=fitting[0] if fitting else None))


class HubLink:
    """The controller's end of a lane. What is sent before the rank has come waits for it."""

    carries_fds = False
    is_level_triggered = False
    largest: int | None = None

    def __init__(self, hub: ZmqHub, id: bytes) -> None:
        self.on_ready: Callable[[], object] = lambda: None
        self._hub = hub
        self._id = id
        self._inbox: deque[memoryview] = deque()
        self._arrived = threading.Condition()  # of `_inbox`, for `recv` on a thread that does not run the loop
        self._unsent: list[bytes] | None = []  # None: the rank is there
        # What waited must go before what is sent now. Reentrant, as the collector may run a `__del__` that sends.
        self._sending = threading.RLock()
        self._trouble = ""

    def fileno(self) -> int:
        return self._hub.fileno()

    def filenos(self) -> Sequence[int]:
        return (self.fileno(),)

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
                    self._hub.send(self._id, END)
                else:
                    self._unsent.append(END)
        with self._arrived:
            self._arrived.notify_all()

    def close(self) -> None:
        self._end("this end is closed")
        if self._unsent is None:
            self._hub.forget(self._id)
        else:  # the rank may be on its way, and must not wait for ever
            self._hub.note_there(self._id)
