"""`%mesh stacks` of ranks that answer: asked, merged and drawn, of eight that loop, sleep and wait, and of many."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator

from measure import Row, check, medians, seconds_text, timed

from meshbook.kernel.mesh import Mesh
from meshbook.kernel.waiting.report import StackReport
from meshbook.widgets.stacks import stacks_html

RANKS = 8
MOST = 50.0
"""Milliseconds."""

MANY = 64
MOST_OF_MANY = 300.0
SLEEPERS = """
import time
def even():
    time.sleep(600)
def odd():
    time.sleep(600)
print("in")
even() if rank % 2 == 0 else odd()
"""

CELL = """
import time, torch, torch.distributed as dist
def inner(depth):
    if depth:
        return inner(depth - 1)
    if rank == 0:
        time.sleep(600)
    if rank == 1:
        while True: pass
    dist.all_reduce(torch.ones(1))
inner(20)
"""


def measure(is_quick: bool) -> Iterator[Row]:
    with Mesh.up("stacks", {"dp": RANKS}, path=sys.path) as mesh:
        idle = medians(5 if is_quick else 50, {"idle": timed(lambda: look(mesh))})["idle"]
        run = mesh.run(CELL)
        wait_until_all_are_there(mesh)
        busy = medians(5 if is_quick else 50, {"busy": timed(lambda: look(mesh))})["busy"]
        check(not run.finished.done(), f"the cell that hangs has ended: {run.progress}")
        check(len(look(mesh).tree[0].branches) == 3, "eight ranks in three places are three branches")
    told = f"{seconds_text(idle)} idle ranks"
    yield Row(f"stacks of {RANKS} ranks", seconds_text(busy), told, busy * 1e3, "ms", MOST)
    yield many(5 if is_quick else 50)


def many(repeats: int) -> Row:
    with Mesh.up("stacks", {"dp": MANY}, backend="none", path=sys.path) as mesh:
        mesh.run(SLEEPERS)
        wait_until(mesh, lambda: all(len(stack.frames) == 2 for stack in mesh.stacks().stacks))
        seconds = [timed(lambda: look(mesh))() for _ in range(repeats)]
        check(len(look(mesh).tree[0].branches) == 2, f"{MANY} ranks in two places are two branches")
    median = statistics.median(seconds)
    told = f"worst of {repeats}: {seconds_text(max(seconds))}"
    return Row(f"stacks of {MANY} ranks", seconds_text(median), told, median * 1e3, "ms", MOST_OF_MANY)


def look(mesh: Mesh) -> StackReport:
    report = mesh.stacks()
    check(len(stacks_html(report)) > len(repr(report)) > RANKS, "there is nothing to show")
    check(not any(stack.how or stack.trouble for stack in report.stacks), f"a rank did not answer:\n{report}")
    return report


def wait_until_all_are_there(mesh: Mesh) -> None:
    wait_until(mesh, lambda: sum(bool(stack.waiting) for stack in mesh.stacks().stacks) >= RANKS - 2)


def wait_until(mesh: Mesh, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        check(time.monotonic() < deadline, f"the ranks did not get where they should:\n{mesh.stacks()}")
