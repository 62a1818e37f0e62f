"""Faults and what they cost: a death to its line in the notebook, an interrupt, a hung collective, a restart.

The worst of all repeats stands beside the median: who waits for a notebook remembers that one.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from measure import Row, check, seconds_text

from meshbook.kernel.drive import Drive
from meshbook.kernel.driver import drive
from meshbook.kernel.mesh import Mesh
from meshbook.kernel.run import Run
from meshbook.kernel.stopping.patience import Patience
from meshbook.runtime.controller.regroup import wait_until
from meshbook.widgets.live import Live

RANKS = 8
SUM = "x = torch.ones(1)\ndist.all_reduce(x)\nassert x.item() == world_size"
SLEEP = "import time\nwhile True: time.sleep(0.01)"
FAILS = "torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(4, 5))(torch.ones(1, 2))"
LOOP = "loop = True\nwhile loop: pass"
STUCK = "print('in')\nif rank: dist.all_reduce(torch.ones(1))\nelse: raise ValueError"


def measure(is_quick: bool) -> Iterator[Row]:
    repeats = 5 if is_quick else 50
    with Mesh.up("faults", {"dp": RANKS}, path=sys.path) as mesh:
        done(mesh, f"import torch, torch.distributed as dist\n{SUM}")
        yield row("death of 1 of 8 ranks to its line", [death(mesh) for _ in range(repeats)], 50.0, worst=500.0)
        yield row("restart of it to a collective", [restart(mesh) for _ in range(repeats)], 500.0)
        yield row("first failure of 8 ranks, in a module", [failure(mesh) for _ in range(min(repeats, 10))], 500.0)
        yield row("interrupt of loops to an idle mesh", [interrupt(mesh) for _ in range(repeats)], 20.0)
        yield row("hung collective to the next, after grace", [stuck(mesh, 0.2) for _ in range(repeats)], 300.0)
        yield row("  seen to hang, without grace", [stuck(mesh, 60.0) for _ in range(repeats)], 700.0)


def row(what: str, seconds: list[float], most: float, worst: float | None = None) -> Row:
    median = statistics.median(seconds)
    limit = f" (<= {worst:g} ms)" if worst else ""
    told = f"worst of {len(seconds)}: {seconds_text(max(seconds))}{limit}"
    return Row(what, seconds_text(median), told, median * 1e3, "ms", most)


def death(mesh: Mesh) -> float:
    """From SIGKILL to the text in the cell; the rank is left dead."""
    stage = Ears("killed by SIGKILL")
    run = mesh.run(SLEEP)
    thread, driven = driven_in_background(mesh, run, stage)
    wait_until_busy(mesh, run)
    started = time.monotonic()
    os.kill(mesh.roster.states[RANKS - 1].pid, signal.SIGKILL)
    check(stage.heard.wait(20), "the death was not told")
    seconds = stage.when - started
    mesh.interrupt(run.owing, run.call)
    thread.join(30)
    check(not thread.is_alive() and driven.run.progress.lost.keys() == {RANKS - 1}, str(run.progress))
    mesh.heal()
    return seconds


def restart(mesh: Mesh) -> float:
    mesh.kill([RANKS - 1])
    started = time.monotonic()
    mesh.heal()
    done(mesh, SUM)
    return time.monotonic() - started


def failure(mesh: Mesh) -> float:
    """From the cell to what all ranks tell of it, in processes that have told of none yet."""
    mesh.kill(range(RANKS))
    mesh.heal()
    done(mesh, SUM)
    started = time.monotonic()
    run = mesh.run(FAILS)
    run.finished.get(30)
    seconds = time.monotonic() - started
    check(len(run.progress.failed) == RANKS, str(run.progress))
    return seconds


def interrupt(mesh: Mesh) -> float:
    """From the interrupt of eight Python loops to the answer of the next cell."""
    run = mesh.run(LOOP)
    wait_until_busy(mesh, run)
    started = time.monotonic()
    mesh.interrupt(run.owing, run.call)
    run.finished.get(30)
    done(mesh, "1")
    return time.monotonic() - started


def stuck(mesh: Mesh, grace: float) -> float:
    """What a cell takes beyond its grace, with seven ranks in a collective that the eighth never joins, and a sum."""
    run = mesh.run(STUCK)
    driven = Drive(mesh, run, Live(Ears(""), range(RANKS)), Patience(time.monotonic(), grace=grace))
    check(wait_until(mesh.roster, lambda: len(run.owing) == RANKS - 1, 20), "the first rank did not raise")
    started = time.monotonic()
    drive(driven)
    done(mesh, SUM)
    check("process groups" in driven.mended, f"the groups were not mended: {driven.mended!r}")
    return time.monotonic() - started - (0.0 if driven.patience.has_given_up else grace)  # of which it took nothing


def done(mesh: Mesh, source: str) -> None:
    run = mesh.run(source)
    run.finished.get(30)
    check(not run.progress.failed and not run.progress.lost, f"{source!r}: {run.progress}")


def driven_in_background(mesh: Mesh, run: Run, stage: Any) -> tuple[threading.Thread, Drive]:
    driven = Drive(mesh, run, Live(stage, range(RANKS)), Patience(time.monotonic(), grace=60.0))
    thread = threading.Thread(target=drive, args=(driven,))
    thread.start()
    return thread, driven


def wait_until_busy(mesh: Mesh, run: Run) -> None:
    """Until every rank is in its loop, in the second line."""
    deadline = time.monotonic() + 30
    while len(mesh.where(run.owing, 5)) < RANKS or any("line 2" not in at for at in mesh.where(run.owing, 5).values()):
        check(time.monotonic() < deadline, "the ranks did not begin")


class Ears:
    """A stage that listens for one text."""

    can_update = False

    def __init__(self, text: str) -> None:
        self._text = text
        self.heard = threading.Event()
        self.when = 0.0

    def write(self, text: str, stream: str = "stdout") -> None:
        if self._text and self._text in text and not self.heard.is_set():
            self.when = time.monotonic()
            self.heard.set()

    def display(self, *args: object, **options: object) -> None: ...

    def clear(self, wait: bool = False) -> None: ...

    def leave(self) -> None: ...
