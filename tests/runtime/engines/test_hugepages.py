"""Huge pages: what was written stays, of a process that makes them and of those that it forks."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.real, pytest.mark.skipif(sys.platform != "linux", reason="of Linux only")]

PROGRAM = """
import mmap, os
from meshbook.runtime.engines.hugepages import collapse

memory = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
pages = range(0, len(memory), mmap.PAGESIZE)
for page in pages:
    memory[page : page + 8] = page.to_bytes(8)
number = collapse()
assert all(memory[page : page + 8] == page.to_bytes(8) for page in pages)
if (child := os.fork()) == 0:
    memory[:8] = b"of child"
    os._exit(0 if all(memory[page : page + 8] == page.to_bytes(8) for page in pages[1:]) else 1)
assert os.waitpid(child, 0)[1] == 0
assert memory[:8] == bytes(8)
with open("/proc/self/smaps_rollup") as sums:
    [huge] = [int(line.split()[1]) for line in sums if line.startswith("AnonHugePages")]
print(number, huge)
"""


def test_what_was_written_stays() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    number, kib = map(int, ran.stdout.split())
    if not number:
        pytest.skip("this kernel makes no huge pages when it is asked to")
    assert number >= 7  # of 16 MB, wherever they begin
    assert kib >= 7 * 2048
