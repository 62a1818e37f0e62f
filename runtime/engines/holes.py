"""The holes in the heap of a zygote, filled before it forks.

A rank shares each page of its zygote until one of them writes to it. Imports free much of what they allocate, all over
the heap; a rank that puts its own objects there copies a page for nearly each of them. So the zygote fills the holes
with what it never frees, and what its ranks make lies side by side on new pages: 1.5 MB less for each rank, which is up
a seventh sooner, for ten milliseconds of the zygote's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from functools import partial
from itertools import repeat

from ..system.libc import libc

SIDE_BY_SIDE = 16 * 1024
"""Bytes that must lie one behind the other before there are no more holes: Python's allocator has pools of so many."""

_MOST_BYTES = 16 << 20
"""For one size; an allocator that has not come to an end by then puts nothing side by side."""

_ROOM = 1 << 20

_POOL_HEADER = 48
_SMALL = range(16, 513, 16)  # what Python's own allocator serves
_LARGE = (65536, 32768, 16384, 8192, 4096, 2048, 1536, 1024, 768, 640)

kept: list[object] = []
"""What fills the holes."""


def fill() -> None:
    """Fill the holes of this process, for as long as it lives."""
    for size in _SMALL:
        if not filled(partial(_new_objects, size), size, SIDE_BY_SIDE - _POOL_HEADER - 2 * size):
            return
    if not hasattr(libc(), "gnu_get_libc_version"):
        return
    malloc = libc().malloc
    malloc.restype, malloc.argtypes = ctypes.c_size_t, [ctypes.c_size_t]
    for chunk in (*_LARGE, *reversed(_SMALL[1:])):
        if not filled(lambda count, size=chunk - 8: map(malloc, repeat(size, count)), chunk, 4 * SIDE_BY_SIDE):
            return
    _make_room(malloc)


def _make_room(malloc: Callable[[int], int]) -> None:
    """Let the heap end in room that was touched: a rank that has to enlarge its heap is given a huge page, 2 MB."""
    sbrk = libc().sbrk
    sbrk.restype, sbrk.argtypes = ctypes.c_size_t, [ctypes.c_ssize_t]
    for _ in range(4 * _ROOM // _LARGE[0]):
        room = sbrk(0) - malloc(_LARGE[0])
        if _ROOM <= room < 4 * _ROOM:  # else it lies elsewhere, in a gap or outside of the heap
            return


def filled(allocate: Callable[[int], Iterable[int]], size: int, enough: int) -> bool:
    """Allocate, some blocks of `size` bytes at a time, until `enough` bytes lie in a row. Whether that came.

    `allocate(count)` gives the addresses.

    Example:
        >>> holes = iter([400, 200, 700, *range(1000, 9000, 100)])
        >>> filled(lambda count: [next(holes) for _ in range(count)], size=100, enough=300)
        True
        >>> next(holes)
        1500
    """
    count = 2 * enough // size + 2
    return any(_longest_row(allocate(count), size) >= enough for _ in range(1 + _MOST_BYTES // (count * size)))


def _longest_row(addresses: Iterable[int], size: int) -> int:
    """The bytes of the longest row of blocks."""
    longest = row = before = 0
    for address in addresses:
        row = row + size if address == before + size else size
        longest, before = max(longest, row), address
    return longest


def _new_objects(size: int, count: int) -> list[int]:
    """The addresses of new objects of so many bytes. Nothing else of this size is made meanwhile, not even a number."""
    if size == object.__basicsize__:
        made: list[object] = [object() for _ in repeat(None, count)]
    elif size == 32:
        made = [zero + 1.0 for zero in repeat(0.0, count)]
    else:
        made = list(map(bytes, repeat(size - bytes.__basicsize__, count)))
    kept.extend(made)
    return list(map(id, made))
