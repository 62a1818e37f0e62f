"""What an editor starts to talk with a rank: passes its standard input and output on to the socket of the rank.

A program of its own, which needs nothing of meshbook: `program` gives it with the path of a socket filled in.
"""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path


def program(path: str) -> str:
    """The text of the program for the socket at `path`."""
    return f"{Path(__file__).read_text()}\n\nif __name__ == '__main__':\n    carry({path!r})\n"


def carry(path: str) -> None:
    """Pass on until one side ends."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.connect(path)
    threading.Thread(target=_carry_in, args=(line,), daemon=True).start()
    with os.fdopen(1, "wb", buffering=0, closefd=False) as out:
        while data := line.recv(1 << 16):
            while data:
                data = data[out.write(data) or 0 :]


def _carry_in(line: socket.socket) -> None:
    while data := os.read(0, 1 << 16):
        line.sendall(data)
    line.shutdown(socket.SHUT_WR)
