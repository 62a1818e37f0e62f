"""What `ps`, `top` and `nvidia-smi` call a rank: those that were forked would all have the name of their zygote."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping

from ..system.libc import libc
from .place import Place, axes_text

_PR_SET_NAME = 15  # linux/prctl.h
_ARG_START = 45  # where the command line begins: a field of /proc/self/stat behind the name, the first of them is 0


def take_title(place: Place) -> None:
    """On the main thread: be called after the place in the mesh, from now on, wherever that may move."""
    if sys.platform == "linux":
        _put(place.rank, place.coord)
        place.movers.append(lambda move: _put(place.rank, place.coord))


def _put(rank: int, coord: Mapping[str, int]) -> None:
    libc().prctl(_PR_SET_NAME, f"rank {rank}".encode(), 0, 0, 0)
    with contextlib.suppress(OSError):  # no descriptor is left to look with, or an emulator has no such memory
        _write_over(title_of(rank, coord).encode())


def _write_over(title: bytes) -> None:
    """The words of a command line lie where Linux has put them. By way of a file: no wrong address can do harm.

    There is room enough: a process that becomes a rank was started with a line that is longer.
    """
    words = _read("/proc/self/cmdline")
    start = int(_read("/proc/self/stat").rpartition(b")")[2].split()[_ARG_START])
    memory = os.open("/proc/self/mem", os.O_RDWR)
    try:
        if words and os.pread(memory, len(words), start) == words:
            os.pwrite(memory, title[: len(words) - 1].ljust(len(words), b"\0"), start)
    finally:
        os.close(memory)


def _read(path: str) -> bytes:
    """What stands there, of which the beginning is enough. `pathlib` would copy 30 pages of the zygote."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 1 << 16)
    finally:
        os.close(fd)


def title_of(rank: int, coord: Mapping[str, int]) -> str:
    """Example:
    >>> title_of(3, {"dp": 1, "tp": 1}), title_of(0, {"rank": 0})
    ('meshbook rank 3 (dp=1 tp=1)', 'meshbook rank 0')
    """
    place = "" if [*coord] == ["rank"] else f" ({axes_text(coord)})"
    return f"meshbook rank {rank}{place}"
