"""What a mesh costs while nobody uses it: CPU of a notebook's kernel, its zygote and eight idle ranks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from front_end import Notebook
from measure import Row, check

RANKS = 8
MOST = 1.0
"""Percent of one core."""

COMPLETE = "from meshbook.runtime.session import session\nassert session().engine('local').completed(60)"
"""The zygote has imported what can wait."""


def measure(is_quick: bool) -> Iterator[Row]:
    seconds = 2.0 if is_quick else 10.0
    with Notebook() as ours, Notebook() as bare:
        ours.execute(f"%load_ext meshbook\n%mesh up m dp={RANKS}")
        ours.execute("%%on_mesh\nimport torch\ntorch.ones(3)")
        bare.execute("1")
        ours.execute(COMPLETE)
        time.sleep(1)  # what the start itself leaves to be done
        family = [psutil.Process(ours.pid), *psutil.Process(ours.pid).children(recursive=True)]
        check(len(family) >= RANKS + 2, f"a mesh of {RANKS} is a kernel, a zygote and ranks, not {family}")
        before = cpu(family), cpu([psutil.Process(bare.pid)])
        started = time.perf_counter()
        time.sleep(seconds)
        after = cpu(family), cpu([psutil.Process(bare.pid)])
        passed = time.perf_counter() - started
    percent, of_kernel = ((b - a) / passed * 100 for a, b in zip(before, after, strict=True))
    told = f"{of_kernel:.2f} % kernel without a mesh"
    yield Row(f"idle mesh of {RANKS}, {seconds:g} s", f"{percent:.2f} %", told, percent, "% core", MOST)


def cpu(processes: list[psutil.Process]) -> float:
    """Seconds of CPU that these processes have used so far."""
    return sum(map(seconds_of, processes))


def seconds_of(process: psutil.Process) -> float:
    """To the nanosecond where the system tells; the times of `psutil` count ticks of 10 ms."""
    files = list(Path(f"/proc/{process.pid}/task").glob("*/schedstat"))
    precise = sum(int(file.read_text().split()[0]) for file in files) / 1e9
    times = process.cpu_times()
    return precise or times.user + times.system
