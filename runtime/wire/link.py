"""Links: whole datagrams between a controller (or agent) and one rank, in order, until one end goes away.

The seam has three kinds, with one set of tests: `pair` (here: a SEQPACKET socket pair that a rank inherits, so that
there is no name and no port to connect to), `zmq` (`zmq_link.py`: between hosts, and where SEQPACKET is missing) and
`inproc` (`inproc.py`: the in-memory fake). Where the links of a crew come from, `wiring.py` says.
"""

from __future__ import annotations

import array
import contextlib
import mmap
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec

from ..errors import LinkClosed

if TYPE_CHECKING:
    from .reactor import Reactor

Buffer = bytes | bytearray | memoryview

LARGEST = 192 * 1024
"""The largest datagram in bytes: below the 208 KB that a stock kernel grants a socket. Larger goes through `pool`."""


class Link(Protocol):
    """One end of a two-way lane. One thread receives; any thread may send."""

    carries_fds: bool
    """Whether file descriptors can travel with a datagram (and so whether shared memory can be used)."""

    is_level_triggered: bool
    """Whether its descriptor stays readable while there is something: a reader may then leave it for the next turn."""

    largest: int | None
    """The bytes that fit into one datagram; None: any number."""

    def fileno(self) -> int:
        """A descriptor that is readable when `recv_nowait` may have something; for a loop, `NearLink.watch`."""
        ...

    def filenos(self) -> Sequence[int]:
        """Who waits elsewhere than in `recv`, once `recv_nowait` has nothing, wakes when one of these is readable."""
        ...

    def send(self, parts: Sequence[Buffer], fds: Sequence[int] = ()) -> None:
        """Send the parts, at least one byte, as one datagram; wait while the other end is slow.

        Raises `LinkClosed` when it is gone, as far as the kind can tell (zmq: when it said so).
        """
        ...

    def send_nowait(self, parts: Sequence[Buffer], fds: Sequence[int] = ()) -> bool:
        """The same without waiting: False when it would have to wait, and then nothing was sent."""
        ...

    def recv(self) -> tuple[memoryview, list[int]]:
        """Wait for the next datagram and its descriptors; the view is valid until the next call."""
        ...

    def recv_nowait(self) -> tuple[memoryview, list[int]] | None:
        """The next datagram if one is there. Raises `LinkClosed` after the last one of an end that is gone."""
        ...

    def close(self) -> None: ...


class NearLink(Link, Protocol):
    """The end in the process that has a loop."""

    def watch(self, reactor: Reactor, on_ready: Callable[[], object]) -> None:
        """Call `on_ready` on the loop when `recv_nowait` may have something, or the other end is gone."""
        ...

    def unwatch(self, reactor: Reactor) -> None: ...

    def watch_writes(self, reactor: Reactor, on: bool) -> None:
        """Also call it when `send_nowait`, which had refused, may go."""
        ...


class Address(msgspec.Struct, frozen=True):
    """By which a rank finds its end of a lane where links have names. Who knows it can be that rank: a secret."""

    endpoint: str
    id: bytes
    server_key: bytes = b""
    public_key: bytes = b""
    secret_key: bytes = b""


@dataclass(frozen=True, slots=True)
class FarEnd:
    """What a process is given to have the other end of a link: a socket to inherit, or an address."""

    sock: socket.socket | None = None
    address: Address | None = None

    @property
    def fd(self) -> int:
        """The descriptor to inherit, or -1."""
        return -1 if self.sock is None else self.sock.fileno()

    def close(self) -> None:
        """Let go of it here, when the process has it."""
        if self.sock is not None:
            self.sock.close()


# Plain numbers: to combine two `socket.MsgFlag` costs a microsecond each time. macOS lacks the first two: Python
# ignores SIGPIPE anyway, and there a pair is used within a process only.
_SEND = int(getattr(socket, "MSG_NOSIGNAL", 0))
_RECV = int(getattr(socket, "MSG_CMSG_CLOEXEC", 0))
_NOWAIT = int(socket.MSG_DONTWAIT)


class PairLink:
    """One end of a SEQPACKET socket pair: message boundaries, end-of-file as death, descriptors as cargo."""

    carries_fds = True
    is_level_triggered = True
    largest: int | None = LARGEST

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        sock.setblocking(True)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        # A buffer that is kept: a fresh one for each datagram costs an mmap and its page faults each time. Pages of its
        # own, of which only those that are used are there: a bytearray of a zygote's child is filled with zeros.
        self._buffers = [mmap.mmap(-1, LARGEST, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)]
        self._view = memoryview(self._buffers[0])

    @classmethod
    def make(cls) -> tuple[PairLink, socket.socket]:
        """A link, and the socket for the other end to be inherited."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(ours), theirs

    def fileno(self) -> int:
        return self._sock.fileno()

    def filenos(self) -> Sequence[int]:
        return (self.fileno(),)

    def watch(self, reactor: Reactor, on_ready: Callable[[], object]) -> None:
        reactor.add(self.fileno(), on_ready)

    def unwatch(self, reactor: Reactor) -> None:
        reactor.remove(self.fileno())

    def watch_writes(self, reactor: Reactor, on: bool) -> None:
        reactor.watch_writes(self.fileno(), on)

    def send(self, parts: Sequence[Buffer], fds: Sequence[int] = ()) -> None:
        self.send_nowait(parts, fds, _SEND)

    def send_nowait(self, parts: Sequence[Buffer], fds: Sequence[int] = (), flags: int = _SEND | _NOWAIT) -> bool:
        try:
            if len(parts) == 1 and not fds:
                self._sock.send(parts[0], flags)
            elif fds:
                cargo = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
                self._sock.sendmsg(parts, cargo, flags)
            else:
                self._sock.sendmsg(parts, [], flags)
        except BlockingIOError:
            return False
        except (BrokenPipeError, ConnectionResetError, ConnectionRefusedError) as gone:
            raise LinkClosed("the other end is gone") from gone
        except OSError as error:
            if self._sock.fileno() < 0:
                raise LinkClosed("this end is closed") from error
            raise
        return True

    def recv(self) -> tuple[memoryview, list[int]]:
        received = self.recv_nowait(_RECV)
        assert received is not None
        return received

    def recv_nowait(self, flags: int = _RECV | _NOWAIT) -> tuple[memoryview, list[int]] | None:
        try:
            size, cargo, _, _ = self._sock.recvmsg_into(self._buffers, _CARGO_SPACE, flags)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            # The other end left without reading all it was sent. Linux says so once, before what it had sent itself.
            return self.recv_nowait(flags)
        except OSError as error:
            if self._sock.fileno() < 0:
                raise LinkClosed("this end is closed") from error
            raise
        if size == 0:
            raise LinkClosed("the other end is gone")
        return self._view[:size], _descriptors(cargo) if cargo else []

    def close(self) -> None:
        self._sock.close()


_CARGO_SPACE = socket.CMSG_SPACE(8 * 4)


def _descriptors(cargo: list[tuple[int, int, bytes]]) -> list[int]:
    fds = array.array("i")
    for level, kind, data in cargo:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return fds.tolist()
