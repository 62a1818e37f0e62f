"""Processes that the running call has started: what interrupts the call reaches them too, as Ctrl-C in a terminal does.

Else `mp.spawn` would go on unseen, and `os.system`, or the end of a `with ProcessPoolExecutor()`, wait for what nobody
has told to stop. Left alone are what calls before have started, what has left the process group of the rank, daemons of
`multiprocessing` (workers of a `DataLoader` or a pool, which go on), and those whom somebody `tends`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ..system.proc import stat_of

_tended: set[int] = set()


@contextmanager
def tends(pid: int) -> Generator[None]:
    """Inside, an interrupt of this process is somebody's own affair."""
    _tended.add(pid)
    try:
        yield
    finally:
        _tended.discard(pid)


def of_multiprocessing() -> frozenset[Any]:
    """The processes of `multiprocessing` that live here, or may."""
    module: Any = sys.modules.get("multiprocessing.process")
    return frozenset() if module is None else frozenset(module._children)


class Moment(NamedTuple):
    """When a call has begun, by `time.monotonic()`, and the processes of `multiprocessing` that there were by then."""

    began: float
    known: frozenset[Any]


def are_there_any() -> bool:
    """Has this process children? One call of the system tells, before all processes are looked at."""
    if not hasattr(os, "waitid"):  # macOS, before Python 3.13
        return True
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def interrupt_those_of(call: Moment, struck: float) -> bool:
    """Interrupt those that it had started when it was struck (by the same clock); whether there are any."""
    import psutil

    kin = {child.pid: child.daemon or child in call.known for child in of_multiprocessing()}
    ages = _Ages(time.monotonic(), call.began, struck)
    heard: set[int] = set()
    for each in psutil.Process().children(recursive=True):  # parents come before their children
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if _hears(each, kin, heard, ages):
                heard.add(each.pid)
                each.send_signal(signal.SIGINT)
    return bool(heard)


def interrupt_those_of_threads(began: Mapping[int, float], struck: float) -> bool:
    """The same of threads: when what each does has begun, by the system's number of it, all by `time.perf_counter`.

    Only Linux tells which thread has started a process; elsewhere nothing is done.
    """
    left_alone = {child.pid for child in of_multiprocessing() if child.daemon} | _tended
    found: set[int] = set()
    for thread, since in began.items():
        ages = _Ages(time.perf_counter(), since, struck)
        found.update(pid for pid in _children(os.getpid(), [thread]) if pid not in left_alone and ages.include(pid))
    heard = [pid for pid in found if _interrupt(pid)]
    return bool(heard)


def _interrupt(pid: int) -> bool:
    """This process and all below it that are in our process group; whether it was one."""
    below = _children(pid, _threads(pid))  # before it ends, and they have another parent
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(pid) == os.getpgrp():
            os.kill(pid, signal.SIGINT)
            for each in below:
                _interrupt(each)
            return True
    return False


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except FileNotFoundError:  # it has ended
        return []


def _children(pid: int, threads: Iterable[int]) -> list[int]:
    """Of these threads of a process, which have started them."""
    found: list[int] = []
    for thread in threads:
        with contextlib.suppress(OSError):  # it has ended, or is no Linux
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


def _hears(process: Any, kin: Mapping[int | None, bool], heard: set[int], ages: _Ages) -> bool:
    """`kin` are the processes of `multiprocessing`, which a server may have forked, and whether to leave them alone."""
    if process.pid in _tended or kin.get(process.pid):
        return False
    parent = process.ppid()
    if parent not in heard and parent != os.getpid() and process.pid not in kin:
        return False
    return (parent in heard or ages.include(process.pid)) and os.getpgid(process.pid) == os.getpgrp()


def _age(pid: int) -> float:
    """In seconds; below zero where there is no such process."""
    import psutil

    try:
        return time.time() - psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return -1.0


class _Ages:
    """Of processes that were started between two moments."""

    def __init__(self, now: float, began: float, struck: float) -> None:
        self._oldest, self._youngest = now - began, now - struck
        self._boot = time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else 0.0

    def include(self, pid: int) -> bool:
        stat = stat_of(pid)  # psutil knows the second of the boot, not more
        if stat is None:
            return self._youngest <= _age(pid) <= self._oldest
        ticks = os.sysconf("SC_CLK_TCK")
        first, last = ((self._boot - age) * ticks for age in (self._oldest, self._youngest))
        return int(first) <= stat.start <= last
