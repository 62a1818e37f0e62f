"""What a process makes after `holes.fill` lies on few pages."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from meshbook.runtime.engines.holes import SIDE_BY_SIDE, filled

PROGRAM = """
import random, sys
from meshbook.runtime.engines import holes

PAGE, SIZE, COUNT = 4096, 80, 2000
random.seed(1)
heap = [bytes(SIZE - 33) for _ in range(200_000)]
for place in random.sample(range(len(heap)), 20_000):  # as imports do
    heap[place] = None
if "fill" in sys.argv:
    holes.fill()
made = [bytes(SIZE - 33) for _ in range(COUNT)]
print(len({id(each) // PAGE for each in made}))
"""


def pages(*args: str) -> int:
    """On so many pages lie 2,000 new objects of 80 bytes."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, *args], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.python_implementation() != "CPython", reason="other heaps")
@pytest.mark.real
def test_what_is_made_afterwards_lies_side_by_side():
    assert pages() > 300
    assert pages("fill") < 80, "40 pages would hold them"


ROOM = """
import ctypes, sys
from meshbook.runtime.engines import holes

KIB = 1024
malloc, sbrk = ctypes.CDLL(None).malloc, ctypes.CDLL(None).sbrk
malloc.restype = sbrk.restype = ctypes.c_size_t
for _ in range(int(sys.argv[1])):
    malloc(100 * KIB)
holes.fill()
end = sbrk(0)
for _ in range(8):
    malloc(100 * KIB)
print(sbrk(0) - end)
"""


@pytest.mark.skipif("glibc" not in platform.libc_ver(), reason="other heaps")
@pytest.mark.parametrize("blocks", range(0, 21, 4))
@pytest.mark.real
def test_the_heap_ends_in_room_so_that_ranks_need_no_huge_page(blocks: int):
    command = [sys.executable, "-c", ROOM, str(blocks)]
    env = os.environ | {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}  # as zygotes have it
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    assert int(done.stdout) == 0, "800 KiB more did not fit in the heap as it was"


@pytest.mark.parametrize("step", [0, -64, 128])
def test_an_allocator_that_puts_nothing_side_by_side_is_given_up(step: int):
    calls = [0]

    def allocate(count: int) -> list[int]:
        calls[0] += count
        return [1 << 40, *(step * number for number in range(1, count))]

    assert not filled(allocate, 64, SIDE_BY_SIDE)
    assert calls[0] < 300_000
