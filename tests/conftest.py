"""What every test is held to: it leaves no process, thread, descriptor or shared-memory segment behind."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

GRACE = 2.0  # seconds that what a test has closed may take to go: a rank needs a moment to exit

# Every process that a test starts inherits this, so that an orphan is still known as ours.
_STATE = tempfile.TemporaryDirectory(prefix="meshbook-state-")
os.environ["MESHBOOK_STATE"] = _STATE.name  # not the user's own, in this process and all that it starts
TOKEN = os.environ["MESHBOOK_TEST"] = uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class Holdings:
    """What the test process holds at one moment."""

    pids: frozenset[int]
    threads: frozenset[threading.Thread]
    descriptors: frozenset[tuple[str, str]]
    segments: frozenset[str]

    @classmethod
    def now(cls) -> Holdings:
        return cls(
            pids=frozenset(psutil.pids()),
            threads=frozenset(thread for thread in threading.enumerate() if _is_watched(thread)),
            descriptors=frozenset(_descriptors()),
            segments=frozenset(_names_in("/dev/shm")),
        )

    def not_in(self, before: Holdings) -> list[str]:
        """One line for each thing that `before` did not hold."""
        processes = [f"process {line}" for pid in self.pids - before.pids if (line := _our_process(pid))]
        threads = [f"thread {thread.name!r}" for thread in self.threads - before.threads]
        descriptors = [f"descriptor {fd} -> {target}" for fd, target in self.descriptors - before.descriptors]
        if len(self.descriptors) <= len(before.descriptors):
            descriptors = []  # one was replaced by another: nothing grows
        segments = [f"shared memory /dev/shm/{name}" for name in self.segments - before.segments]
        return sorted(processes + threads + descriptors + segments)


@dataclass(slots=True)
class Leaks:
    """The watch over one test; ask for the fixture `leaks` to tell it what may stay."""

    before: Holdings

    def allow_what_stands(self) -> None:
        """What exists now is no leak: for what one test starts and all share, such as the zygote."""
        self.before = Holdings.now()

    def allow_descriptors(self) -> None:
        """Those that are open now are no leak."""
        self.before = replace(self.before, descriptors=Holdings.now().descriptors)

    def found(self, grace: float = GRACE) -> list[str]:
        """What is still there when `grace` seconds are over; empty as soon as nothing is."""
        deadline = time.monotonic() + grace
        while leaked := Holdings.now().not_in(self.before):
            if time.monotonic() > deadline:
                return leaked
            gc.collect()
            time.sleep(0.02)
        return []


@pytest.fixture(autouse=True)
def leaks() -> Iterator[Leaks]:
    watch = Leaks(Holdings.now())
    yield watch
    if leaked := watch.found():
        _kill_processes_since(watch.before)
        pytest.fail("the test left behind:\n  " + "\n  ".join(leaked), pytrace=False)


def _is_watched(thread: threading.Thread) -> bool:
    return not thread.daemon or thread.name.startswith("meshbook-")


def _descriptors() -> Iterator[tuple[str, str]]:
    for fd in _names_in("/proc/self/fd") or _names_in("/dev/fd"):
        with contextlib.suppress(OSError):  # the descriptor that lists the folder is closed by now
            yield fd, os.readlink(f"/proc/self/fd/{fd}")


def _names_in(folder: str) -> list[str]:
    return os.listdir(folder) if Path(folder).is_dir() else []


def _our_process(pid: int) -> str | None:
    """A line about a process that descends from this one, even as an orphan; None for one of others."""
    try:
        process = psutil.Process(pid)
        if process.ppid() == os.getpid() or process.environ().get("MESHBOOK_TEST") == TOKEN:
            return f"{pid} {process.name()}: {_command(process)}"
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        pass  # gone meanwhile, or not ours to look at
    return None


def _command(process: psutil.Process) -> str:
    is_zombie = process.status() == psutil.STATUS_ZOMBIE
    return "ended, and nobody has waited for it" if is_zombie else " ".join(process.cmdline())


def _kill_processes_since(before: Holdings) -> None:
    """The next test must not suffer for this one."""
    for pid in frozenset(psutil.pids()) - before.pids:
        if _our_process(pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()
