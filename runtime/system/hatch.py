"""A way in for the user's other terminals: `python -m meshbook.debug` finds this process by it, and talks with it.

A socket in the folder that only this user can read (`registry.state_folder`); who comes in is this user, or root. What
answers stands above and is imported when the first one knocks: where nobody ever does, the hatch is one descriptor.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakSet

from ..upstairs import porter
from ..wire.reactor import Reactor
from .forks import let_go_in_child
from .proc import stat_of
from .registry import registry, state_folder

SUFFIX = ".sock"

_BACKLOG = 8

_PAUSE = 1.0
"""Seconds after which a guest is looked for again to whom the door could not be opened."""


def look() -> None:
    """Ask the user of this terminal about ranks that are stopped, if any ever was."""
    if porter.has_come:
        porter().look()


class Hatch:
    """The hatch of this process."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._socket: socket.socket | None = None
        self._path: Path | None = None
        self._guests: WeakSet[socket.socket] = WeakSet()
        let_go_in_child(self)

    def open(self) -> None:
        """Let guests knock from now on. Where the folder cannot be written to, nobody will."""
        with contextlib.suppress(OSError):
            folder = state_folder()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            own = stat_of(os.getpid())
            self._listen(folder / f"{os.getpid()}-{own.start if own else 0}{SUFFIX}")
            registry.note(self, {os.getpid(): "hatch"})  # who tidies up knows the socket of one that was killed by that

    def _listen(self, path: Path) -> None:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            path.unlink(missing_ok=True)  # of one who had this pid, and the same start after another boot
            with short_name(path) as name:
                made.bind(name)
            path.chmod(0o600)
            made.listen(_BACKLOG)
        except OSError:
            made.close()
            raise
        made.setblocking(False)
        self._socket, self._path = made, path
        self._watch()

    def _watch(self) -> None:
        if self._socket is not None:
            self._reactor.add(self._socket.fileno(), self._on_knock)

    def close(self) -> None:
        """Nobody comes in any more, and who is there is told by the end of the line."""
        for guest in list(self._guests):
            with contextlib.suppress(OSError):  # it has gone by itself
                guest.shutdown(socket.SHUT_RDWR)
        if self._socket is not None and self._path is not None:
            self._reactor.remove(self._socket.fileno())
            self._path.unlink(missing_ok=True)
            registry.drop(self)
            self.let_go()

    def let_go(self) -> None:
        """In a forked child: guests come to its parent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._guests = WeakSet()

    def _on_knock(self) -> None:
        assert self._socket is not None
        try:
            guest, _ = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # it went again
        except OSError:  # no descriptor is left for it: it waits at the door, which would tell of it at each turn
            self._reactor.remove(self._socket.fileno())
            self._reactor.later(_PAUSE, self._watch)
            return
        if not is_welcome(guest):
            guest.close()
            return
        self._guests.add(guest)
        # What answers is imported first, and takes its time for a conversation: not on the loop.
        threading.Thread(target=_receive, args=(guest,), name="meshbook-guest", daemon=True).start()


def _receive(guest: socket.socket) -> None:
    guest.setblocking(True)
    with guest:
        porter().receive(guest)


def is_welcome(peer: socket.socket) -> bool:
    """Is this the same user, or root? Where the system does not tell, the rights of the folder have decided.

    Example:
        >>> one, other = socket.socketpair()
        >>> with one, other:
        ...     is_welcome(one)
        True
    """
    if sys.platform != "linux":
        return True
    _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return uid in (os.getuid(), 0)


@contextmanager
def short_name(path: Path) -> Generator[str]:
    """A name of this socket that fits into an address, which has room for about 100 characters."""
    if sys.platform != "linux":
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
