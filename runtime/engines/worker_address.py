"""Where worker loops listen and are dialled, as programs for Monarch write it."""

from __future__ import annotations

import re
from typing import NamedTuple

LONGEST_PATH = 100
"""Bytes of the path of a socket: 103 on macOS, 107 on Linux."""


class WorkerAddress(NamedTuple):
    """A way to a worker loop. Both ends are `tcp://HOST:PORT`, `ipc://PATH` or `inproc://NAME`."""

    dial: str
    """What clients connect to."""
    bind: str
    """What the worker loop listens at."""
    fd: int = -1
    """A socket that listens there already; -1: none, it is made."""

    @property
    def transport(self) -> str:
        return self.bind.partition("://")[0]

    @property
    def host(self) -> str:
        """The host that clients dial; empty where that is this machine."""
        name = self.dial.removeprefix("tcp://").rpartition(":")[0] if self.dial.startswith("tcp://") else ""
        return "" if name == "localhost" or name.startswith("127.") else name


def read_address(text: str) -> WorkerAddress:
    """An address as a program gives it: `tcp://node7:26600`, or `DIAL@BIND` where the two differ.

    `tcp://127.0.0.1:fd7` means the listening socket of that descriptor.

    Raises `ValueError` for one that no worker loop can have.

    Example:
        >>> read_address("tcp://node7:26600@tcp://0.0.0.0:26600").bind
        'tcp://0.0.0.0:26600'
        >>> read_address("tcp://127.0.0.1:fd7").fd
        7
        >>> read_address("tcp://*:26600")
        Traceback (most recent call last):
        ValueError: 'tcp://*:26600' is no address to dial: say tcp://NAME:26600@tcp://0.0.0.0:26600
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a program may err
        raise TypeError(f"an address is text such as 'tcp://node7:26600', not {text!r}")
    dial, at, bind = text.rpartition("@")
    if not at or "://" not in bind:  # an `@` in a path, or of an abstract socket
        dial, bind = text, text
    fd = _check(text, bind)
    if dial != bind and _check(text, dial) >= 0:
        raise ValueError(f"{text!r}: a descriptor listens, and cannot be dialled")
    return WorkerAddress(dial, bind, fd)


def _check(text: str, end: str) -> int:
    """The descriptor in one end of an address, or -1."""
    scheme, _, rest = end.partition("://")
    if scheme == "tcp":
        return _check_tcp(text, rest)
    if scheme == "ipc" and len(rest.encode()) > LONGEST_PATH:
        raise ValueError(f"{text!r}: the path of a socket has at most {LONGEST_PATH} bytes")
    if scheme not in ("ipc", "inproc") or not rest:
        raise ValueError(f"{text!r} is no address of a worker loop: say tcp://HOST:PORT, ipc://PATH or inproc://NAME")
    return -1


def _check_tcp(text: str, place: str) -> int:
    host, _, port = place.rpartition(":")
    if descriptor := re.fullmatch(r"fd(\d+)", port):
        return int(descriptor[1])
    if host == "*":
        raise ValueError(f"{text!r} is no address to dial: say tcp://NAME:{port}@tcp://0.0.0.0:{port}")
    if not re.fullmatch(r"\w[\w.-]*", host, re.ASCII) or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{text!r} names no host and port: say tcp://HOST:PORT, such as tcp://node7:26600")
    return -1
