"""What a process holds at one moment (processes, threads, descriptors, memory), and one that can hold no more."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

TOKEN = "MESHBOOK_TEST"
"""The environment variable by which the processes that a test has started are known, also when they are orphans."""

GRACE = 2.0
"""Seconds that what was closed may take to go: a rank needs a moment to exit."""


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
            segments=frozenset(name for name in _names_in("/dev/shm") if not name.startswith(".org.chromium")),
        )

    def not_in(self, before: Holdings) -> list[str]:
        """One line for each thing that `before` did not hold."""
        processes = [f"process {line}" for pid in self.pids - before.pids if (line := our_process(pid))]
        threads = [f"thread {thread.name!r}" for thread in self.threads - before.threads]
        descriptors = [f"descriptor {fd} -> {target}" for fd, target in self.descriptors - before.descriptors]
        if len(self.descriptors) <= len(before.descriptors) or (_has_gpu(self) and not _has_gpu(before)):
            descriptors = []  # one was replaced by another, or a GPU was opened, as it is once in a process
        segments = [f"shared memory /dev/shm/{name}" for name in self.segments - before.segments]
        return sorted(processes + threads + descriptors + segments)


def left_since(before: Holdings, grace: float = GRACE) -> list[str]:
    """What is still there when `grace` seconds are over, and was not before; empty as soon as nothing is."""
    deadline = time.monotonic() + grace
    while leaked := Holdings.now().not_in(before):
        if time.monotonic() > deadline:
            return leaked
        gc.collect()
        time.sleep(0.02)
    return []


def _has_gpu(held: Holdings) -> bool:
    return any(target.startswith("/dev/nvidia") for _, target in held.descriptors)


def _is_watched(thread: threading.Thread) -> bool:
    return not thread.daemon or thread.name.startswith("meshbook-")


def _descriptors() -> Iterator[tuple[str, str]]:
    for fd in _names_in("/proc/self/fd") or _names_in("/dev/fd"):
        with contextlib.suppress(OSError):  # the descriptor that lists the folder is closed by now
            yield fd, os.readlink(f"/proc/self/fd/{fd}")


def _names_in(folder: str) -> list[str]:
    return os.listdir(folder) if Path(folder).is_dir() else []


def our_process(pid: int) -> str | None:
    """A line about a process that descends from this one, even as an orphan; None for one of others."""
    try:
        process = psutil.Process(pid)
        if process.ppid() == os.getpid() or process.environ().get(TOKEN) == os.environ.get(TOKEN, ""):
            return f"{pid} {process.name()}: {_command(process)}"
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        pass  # gone meanwhile, or not ours to look at
    return None


def _command(process: psutil.Process) -> str:
    is_zombie = process.status() == psutil.STATUS_ZOMBIE
    return "ended, and nobody has waited for it" if is_zombie else " ".join(process.cmdline())


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    """This process may open nothing more."""
    former = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, former[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, former)
