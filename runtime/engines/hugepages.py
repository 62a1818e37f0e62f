"""The memory of a zygote in huge pages, so that a fork of it has less to copy.

A fork copies the page table, an entry for each 4 KiB that were written to: 80,000 of a zygote that has torch and its
compiler. Huge pages have one for 2 MiB; the kernel splits them where a rank writes, so that ranks copy no more than
before. A fork takes 1 ms in place of 3; this takes 0.1 s, once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

from ..system.libc import libc

_MADV_COLLAPSE = 25  # Linux 6.1
_HUGE = 2 << 20


def collapse() -> int:
    """Turn what this process has allocated into huge pages, where the kernel does so; how many there are then."""
    madvise = libc().madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    with open("/proc/self/maps") as maps:
        pages = huge_pages(maps.readlines())
    return sum(madvise(page, _HUGE, _MADV_COLLAPSE) == 0 for page in pages)


def huge_pages(maps: Iterable[str]) -> list[int]:
    """The addresses of the huge pages that lie within memory of one's own, of the lines of a map (`/proc/PID/maps`).

    Example:
        >>> lines = ["3ff000-a00000 rw-p 0 00:00 0 [heap]", "c00000-e00000 r--p 0 00:00 0"]
        >>> [hex(page) for page in huge_pages(lines)]
        ['0x400000', '0x600000', '0x800000']
    """
    found: list[int] = []
    for line in maps:
        addresses, access, _, _, inode, *name = line.split(maxsplit=5)
        if access == "rw-p" and inode == "0" and (not name or name[0].strip() == "[heap]"):
            start, end = (int(each, 16) for each in addresses.split("-"))
            found += range(-(-start // _HUGE) * _HUGE, end - _HUGE + 1, _HUGE)
    return found
