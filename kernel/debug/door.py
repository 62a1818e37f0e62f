"""The door by which an editor comes to a rank: a socket in a folder that only its user can enter.

The Debug Adapter Protocol knows no secrets: who can connect runs code. On a port of loopback that is everybody who has
an account on the machine. debugpy has a token, but asks for it only between its own two halves: no editor knows it.
So there is no port: whom the file system lets through to the socket may come in.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .framing import framed

_GOODBYE = {"seq": 1 << 30, "type": "request", "command": "disconnect", "arguments": {"terminateDebuggee": False}}


class Door(socket.socket):
    """Listens at a path. Raises `PermissionError` where others could come in, `OSError` where there can be no socket.

    It is what pydevd takes for its server socket on TCP.
    """

    def __init__(self, path: Path, on_editor: Callable[[], object] = lambda: None) -> None:
        """`on_editor` is called when one comes, on the thread that waits for it."""
        _check_private(path.parent)
        super().__init__(socket.AF_UNIX, socket.SOCK_STREAM)
        self._path, self._on_editor = str(path), on_editor
        self.bind(self._path)

    def accept(self) -> tuple[socket.socket, Any]:
        """Wait for an editor."""
        line, address = super().accept()
        self._on_editor()
        return Line(fileno=line.detach()), address

    def getsockname(self) -> Any:
        """In two parts, as an address of TCP has them."""
        return self._path, 0


class Line(socket.socket):
    """What comes from an editor; when it goes without a word, this says goodbye for it.

    Otherwise the threads that it has stopped would wait forever.
    """

    _has_ended = False

    def recv(self, *args: Any) -> bytes:
        """As that of any socket."""
        try:
            data = super().recv(*args)
        except ConnectionError:
            data = b""
        if data or self._has_ended:
            return data
        self._has_ended = True
        return framed(_GOODBYE)


def _check_private(folder: Path) -> None:
    """Make the folder, where it is not there. (On another host than the notebook's it is not.)"""
    folder.mkdir(mode=0o700, exist_ok=True)
    told = folder.stat()
    if told.st_uid != os.geteuid() or stat.S_IMODE(told.st_mode) & 0o077:
        raise PermissionError(f"{folder} can be entered by others")
