"""The guard of processes that know no lifeline."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from meshbook.runtime.engines.guard import Guard

pytestmark = pytest.mark.real

Until = Callable[..., Any]

HELD = """
import os, subprocess, sys
from meshbook.runtime.engines.guard import Guard
sleeper = subprocess.Popen(["sleep", "600"], start_new_session=True)
guard = Guard([sleeper.pid])
if os.fork() == 0:
    os.read(0, 1)
    os._exit(0)
print(sleeper.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_closing_it_ends_who_still_lives():
    ended, sleeper = (subprocess.Popen(["sleep", seconds]) for seconds in ("0", "600"))
    ended.wait()
    guard = Guard([ended.pid, sleeper.pid])
    assert sleeper.poll() is None
    guard.close()
    assert sleeper.wait(10) == -9


@pytest.mark.slow
def test_it_ends_them_when_this_process_was_killed_though_a_child_of_it_lives(until: Until):
    with subprocess.Popen([sys.executable, "-c", HELD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.wait(10)
        until(lambda: not is_alive(pid))
