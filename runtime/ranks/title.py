"""What `ps`, `top` and `nvidia-smi` call a rank: those that were forked would all have the name of their zygote."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Mapping

from ..libc import libc
from .place import Place, axes_text

_PR_SET_NAME = 15  # linux/prctl.h
_ARG_START, _ARG_END = 45, 46  # fields of /proc/self/stat behind the name, the first of them is 0


def take_title(place: Place) -> None:
    """On the main thread: be called after the place in the mesh, from now on, wherever that may move."""
    if sys.platform == "linux":
        _put(place.rank, place.coord)
        place.movers.append(lambda move: _put(place.rank, place.coord))


def _put(rank: int, coord: Mapping[str, int]) -> None:
    """The words of a command line lie where Linux has put them, and may be written over.

    There is room enough: a process that becomes a rank was started with a line that is longer.
    """
    libc().prctl(_PR_SET_NAME, f"rank {rank}".encode(), 0, 0, 0)
    with contextlib.suppress(OSError):  # no descriptor is left to look with
        start, end = _place_of_words()
        if start and end > start:
            title = title_of(rank, coord).encode()[: end - start - 1]
            ctypes.memmove(start, title.ljust(end - start, b"\0"), end - start)


def title_of(rank: int, coord: Mapping[str, int]) -> str:
    """Example:
    >>> title_of(3, {"dp": 1, "tp": 1}), title_of(0, {"rank": 0})
    ('meshbook rank 3 (dp=1 tp=1)', 'meshbook rank 0')
    """
    place = "" if [*coord] == ["rank"] else f" ({axes_text(coord)})"
    return f"meshbook rank {rank}{place}"


def _place_of_words() -> tuple[int, int]:
    """Where the command line begins and ends in memory; zeros where Linux does not say."""
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[_ARG_START]), int(fields[_ARG_END])
