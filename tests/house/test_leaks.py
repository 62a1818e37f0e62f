"""The watch that `tests/conftest.py` keeps over every test (`tests/holdings.py`) sees what it is there to see."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

Leaks = Any  # the class stands in `tests/conftest.py`, which cannot be imported by name


def test_nothing_is_found_where_nothing_is_left(leaks: Leaks) -> None:
    assert leaks.found(grace=0) == []


def test_a_descriptor_is_found(leaks: Leaks) -> None:
    with open(os.devnull) as file:
        assert leaks.found(grace=0) == [f"descriptor {file.fileno()} -> /dev/null"]


@pytest.mark.parametrize(("name", "daemon"), [("mine", False), ("meshbook-loop", True)])
def test_a_thread_is_found(leaks: Leaks, name: str, daemon: bool) -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name=name, daemon=daemon)
    thread.start()
    assert leaks.found(grace=0) == [f"thread {name!r}"]
    done.set()
    thread.join()


def test_a_child_is_found_and_so_is_its_zombie(leaks: Leaks) -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            while not psutil.Process(child.pid).cmdline():  # the kernel is still loading the program
                pass
            assert leaks.found(grace=0) == [f"process {child.pid} sleep: sleep 60"]
        finally:
            child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is still to be waited for
        assert "nobody has waited for it" in leaks.found(grace=0)[0]


def test_an_orphan_is_found(leaks: Leaks) -> None:
    with subprocess.Popen(["sh", "-c", "sleep 60 & echo $!"], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        orphan = int(parent.stdout.readline())
        parent.wait()
        try:
            assert [line for line in leaks.found(grace=0) if line.startswith(f"process {orphan} ")]
        finally:
            os.kill(orphan, signal.SIGKILL)
        assert parent.stdout.read() == ""  # the end of the file is the end of the orphan, who held its other end


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="shared memory has no folder here")
def test_a_segment_is_found(leaks: Leaks) -> None:
    segment = Path(f"/dev/shm/meshbook-test-{os.getpid()}")
    segment.touch()
    assert leaks.found(grace=0) == [f"shared memory {segment}"]
    segment.unlink()


def test_what_is_allowed_is_no_leak(leaks: Leaks) -> None:
    with open(os.devnull):
        leaks.allow_what_stands()
        assert leaks.found(grace=0) == []
