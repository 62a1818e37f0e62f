"""What `python -m meshbook.debug` and the process that it has found say to each other. Plain data, one frame each."""

from __future__ import annotations

import select
import socket
import struct
import threading

import msgspec

from ...runtime.wire.unicode import packed

_MOST = 64 << 20
"""Bytes of one letter: a longer one is none of ours."""

_length = struct.Struct("<I")


class Letter(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The kinds are below; each says who writes it."""


class List(Letter, frozen=True):
    """The terminal asks: which meshes are there? Answered by `Listing`."""


class Look(Letter, frozen=True):
    """The terminal asks: where is everybody? Answered by `Out` and `End`."""

    mesh: str = ""
    selector: str = ""
    native: bool = False


class Watch(Letter, frozen=True):
    """The terminal asks: where do ranks spend their time? Answered by `Out` and `End`, when `seconds` are over.

    A terminal that closes its side of the stream has seen enough: it is told what was seen until then.
    """

    mesh: str = ""
    selector: str = ""
    seconds: float = 3.0


class Attach(Letter, frozen=True):
    """The terminal wants to talk with who is stopped on a mesh, and to stop those that `selector` names first."""

    mesh: str = ""
    selector: str = ""


class Line(Letter, frozen=True):
    """The terminal answers the question of this number."""

    question: int
    text: str


class Complete(Letter, frozen=True):
    """The terminal asks what could stand where this begins. Answered by `Words`."""

    prefix: str


class MeshFacts(msgspec.Struct, frozen=True, array_like=True):
    """A mesh in a listing."""

    name: str
    axes: dict[str, int]
    states: dict[int, str]
    stops: dict[int, str]
    """By rank, where it is stopped; empty for one that asks for input."""


class Listing(Letter, frozen=True):
    """The process answers: what it runs, where its own main thread is, and its meshes."""

    command: str
    folder: str
    place: str
    meshes: tuple[MeshFacts, ...]


class Out(Letter, frozen=True):
    """The process has something to show."""

    text: str


class Question(Letter, frozen=True):
    """The process wants a line; the last question counts, one without a number takes back what was asked."""

    number: int
    prompt: str = ""
    is_secret: bool = False


class Words(Letter, frozen=True):
    """The process answers what could stand where this begins."""

    prefix: str
    words: tuple[str, ...]


class End(Letter, frozen=True):
    """The process has no more to say; `is_fault` if it could not do what was asked."""

    text: str = ""
    is_fault: bool = False


FromTerminal = List | Look | Watch | Attach | Line | Complete
FromProcess = Listing | Out | Question | Words | End

_from_terminal = msgspec.msgpack.Decoder(FromTerminal).decode
_from_process = msgspec.msgpack.Decoder(FromProcess).decode


class Wire:
    """Letters over a stream socket; any thread may send, one receives.

    Who receives gets None when the other side has gone, and `ValueError` for what is no letter of its kinds.

    Example:
        >>> one, other = socket.socketpair()
        >>> with one, other:
        ...     _ = Wire(one).send(Complete("mo"))
        ...     Wire(other).recv_from_terminal()
        Complete(prefix='mo')
    """

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._sending = threading.Lock()  # two letters at once would be in each other

    def send(self, letter: Letter) -> bool:
        """Whether somebody was there to send to."""
        data = packed(letter)
        try:
            with self._sending:
                self._stream.sendall(_length.pack(len(data)) + data)
        except OSError:
            return False
        return True

    def rest(self, seconds: float) -> bool:
        """Wait so long; False as soon as the other side has closed its half, or has said something."""
        return not select.select([self._stream], [], [], seconds)[0]

    def recv_from_terminal(self) -> FromTerminal | None:
        data = self._recv()
        return None if data is None else _from_terminal(data)

    def recv_from_process(self) -> FromProcess | None:
        data = self._recv()
        return None if data is None else _from_process(data)

    def _recv(self) -> bytes | None:
        head = self._take(_length.size)
        if head is None:
            return None
        (size,) = _length.unpack(head)
        if size > _MOST:
            raise ValueError(f"a letter of {size} bytes: this is not the debugger")
        return self._take(size)

    def _take(self, size: int) -> bytes | None:
        taken = bytearray()
        while len(taken) < size:
            try:
                part = self._stream.recv(min(size - len(taken), 1 << 16))
            except OSError:
                return None
            if not part:
                return None
            taken += part
        return bytes(taken)
