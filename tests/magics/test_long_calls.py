"""A script that waits for actors which hang is told so, however it waits; one whose calls just take long is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.real]

SCRIPT = """
import asyncio, os, time
from meshbook import Actor, endpoint, this_host
from meshbook.runtime.controller import long_calls

long_calls.PACE = 0.6

class Trainer(Actor):
    @endpoint
    def pid(self):
        return os.getpid()

    @endpoint
    def step(self, absent, seconds=0.0):
        import torch, torch.distributed as dist  # here: the program itself comes up sooner without it

        time.sleep(seconds)
        if dist.get_rank() != absent:
            dist.all_reduce(torch.ones(2))

trainer = this_host().spawn_procs({"dp": 3}).spawn("trainer", Trainer)
print(*trainer.pid.call().get().values(), flush=True)
"""

BLOCKED = "trainer.step.call(1).get()"
AWAITED = """
async def main():
    await trainer.step.call(1)
asyncio.run(main())
"""


@contextmanager
def running(folder: Path, end: str) -> Generator[tuple[subprocess.Popen[str], list[int]]]:
    """A script that does this in the end, and the pids of its ranks."""
    path = folder / "train.py"
    path.write_text(SCRIPT + end)
    command = [sys.executable, "-W", "error", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as script:
        assert script.stdout is not None
        try:
            yield script, [int(word) for word in script.stdout.readline().split()]
        finally:
            script.kill()


@pytest.mark.parametrize("wait", [BLOCKED, AWAITED])
def test_it_says_who_waits_where_and_for_whom(tmp_path: Path, wait: str) -> None:
    with running(tmp_path, wait) as (script, _):
        assert script.stderr is not None
        line = script.stderr.readline()
    number = next(i for i, text in enumerate(SCRIPT.splitlines(), 1) if "all_reduce" in text)
    assert line.startswith("0,2 ≠ ranks 0,2 wait in all_reduce #1 (2,) at ")
    assert f"{tmp_path.name}/train.py, line {number}; rank 1 has issued none: " in line
    assert "`python -m meshbook.debug stacks` shows where each rank is, `stop()` of their mesh ends them" in line


def test_a_rank_that_is_stopped_is_named(tmp_path: Path) -> None:
    with running(tmp_path, BLOCKED.replace("(1)", "(-1, 1.0)")) as (script, pids):
        assert script.stderr is not None
        os.kill(pids[1], signal.SIGSTOP)
        line = script.stderr.readline()
        assert line.startswith(f"1 ‖ rank 1 (dp=1, pid {pids[1]}) on host ") and "SIGSTOP" in line


def test_a_call_that_takes_long_is_none_that_hangs(tmp_path: Path) -> None:
    with running(tmp_path, "trainer.step.call(-1, seconds=2.0).get()") as (script, _):
        assert script.wait(30) == 0
        assert script.stderr is not None and script.stderr.read() == ""
