"""`%pip`, `%conda` and their like in a cell: one rank after another, since all of a machine change the same files."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import sys
from collections.abc import Generator

_CONDAS = "conda", "mamba", "micromamba"
MANAGERS = ("pip", "uv", *_CONDAS)
"""Magics of IPython's that change what is installed beside this Python."""

_ASK = {"pip": ("uninstall",)} | dict.fromkeys(_CONDAS, ("install", "remove", "uninstall", "update", "upgrade"))
_YES = {"-y", "--y", "--yes"}


def answered(manager: str, line: str) -> str:
    """A command that answers what it would ask: nobody types at a rank.

    Example:
        >>> answered("pip", "uninstall numpy"), answered("pip", "install numpy"), answered("conda", "update -y numpy")
        ('uninstall numpy --yes', 'install numpy', 'update -y numpy')
    """
    words = line.split()
    asks = words[:1] and words[0] in _ASK.get(manager, ())
    return line if not asks or _YES.intersection(words) else f"{line} --yes"


@contextlib.contextmanager
def a_turn() -> Generator[None]:
    """Hold this Python's folder, as one rank of the machine at a time: two would pull files from under each other."""
    folder = os.open(sys.prefix, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: then as if there were one rank
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)  # which gives the lock up, also where the process ends
        importlib.invalidate_caches()
