"""What a process makes after `holes.fill` lies on few pages."""

from __future__ import annotations

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


@pytest.mark.parametrize("step", [0, -64, 128])
def test_an_allocator_that_puts_nothing_side_by_side_is_given_up(step: int):
    calls = [0]

    def allocate(count: int) -> list[int]:
        calls[0] += count
        return [1 << 40, *(step * number for number in range(1, count))]

    assert not filled(allocate, 64, SIDE_BY_SIDE)
    assert calls[0] < 300_000
