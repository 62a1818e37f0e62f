"""A plain cell that waits for actors which hang in a collective says so, while it waits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.magics.front_end import Kernel
from tests.magics.hurry import hurried
from tests.stopping import stop

pytestmark = [pytest.mark.slow, pytest.mark.real]


TRAINER = """
import torch
import torch.distributed as dist
from meshbook import Actor, endpoint

class Trainer(Actor):
    @endpoint
    def step(self, absent=()):
        if dist.get_rank() not in absent:
            dist.all_reduce(torch.ones(2))

trainer = m.spawn("trainer", Trainer)
trainer.step.call().get()
"""


@pytest.fixture(scope="module", autouse=True)
def hurry(shared_kernel: Kernel) -> Iterator[None]:
    """Who hangs is told after parts of a second."""
    with (
        hurried(shared_kernel, "meshbook.kernel.waiting.hangs", FIRST=0.5, PATIENCE=0.3),
        hurried(shared_kernel, "meshbook.kernel.waiting.halts", PACE=0.2, SURE=0.1),
        hurried(shared_kernel, "meshbook.kernel.waiting.queued", TOLD_AFTER=0.1),
    ):
        yield


@pytest.mark.parametrize("wait", ["trainer.step.call([1]).get()", "await trainer.step.call([1])"])
def test_it_says_who_waits_where_and_for_whom(kernel: Kernel, wait: str) -> None:
    kernel.ok(TRAINER)
    cell = kernel.start(wait)
    cell.until(": `%mesh interrupt`, after the stop button, frees them, `%mesh stacks` shows where each rank is\n")
    line = next(line for line in cell.text.splitlines() if "≠" in line)
    assert line.startswith("0,2-3 ≠ ranks 0,2-3 wait in all_reduce #")
    assert "rank 1 has issued only" in line
    kernel.interrupt()
    assert cell.end().error.startswith("CancelledError" if wait.startswith("await") else "KeyboardInterrupt")
    assert re.search(r"cell \d+ line 9 in step, waiting in all_reduce", kernel.ok("%mesh").text)
    assert kernel.ok("%mesh interrupt").stdout.startswith("interrupted: ranks 0,2-3 in trainer.step\n")
    kernel.ok("trainer.step.call().get()\ntrainer.stop().get()")


SLOW = """
import os, time
from meshbook import Actor, endpoint

class Slow(Actor):
    @endpoint
    def work(self, gate=""):
        while gate and not os.path.exists(gate):
            time.sleep(0.01)

slow = m.spawn("slow", Slow)
slow.work.call().get()
"""


@pytest.mark.parametrize("wait", ["slow.work.call().get()", "await slow.work.call()"])
def test_so_does_one_whose_call_waits_behind_one_of_a_cell_before(kernel: Kernel, tmp_path: Path, wait: str) -> None:
    kernel.ok(SLOW)
    gate = tmp_path / "gate"
    kernel.ok(f"before = slow.slice(tp=0).work.call({str(gate)!r})")
    cell = kernel.start(wait)
    cell.until("shows where each rank is\n")
    said = re.escape("◌ have not begun a call of this cell, and still work on slow.work, called before it: `%mesh int")
    assert re.search(rf"^0,2 {said}", cell.text, re.M)
    gate.touch()
    assert cell.end().status == "ok"
    kernel.ok("before.get()\nslow.stop().get()")


OWN = """
class Own(Trainer):
    @endpoint
    def prepare(self):
        dist.init_process_group("gloo")

procs = this_host().spawn_procs({"gpus": 2})
own = procs.spawn("own", Own)
own.prepare.call().get()
"""


def test_so_does_one_that_waits_on_a_mesh_of_its_own(kernel: Kernel) -> None:
    kernel.ok(TRAINER + "from meshbook import this_host" + OWN)
    cell = kernel.start("own.step.call([0]).get()")
    cell.until(": `python -m meshbook.debug stacks` shows where each rank is, `stop()` of their mesh ends them\n")
    line = next(line for line in cell.text.splitlines() if "≠" in line)
    assert line.startswith("1 ≠ rank 1 waits in all_reduce #1 (2,) at cell ")
    kernel.interrupt()
    ended = cell.end()
    assert ended.error.startswith("KeyboardInterrupt")
    assert "actors on rank 1 of an unnamed mesh go on: `stop()` of their mesh ends them" in ended.stderr
    kernel.ok("procs.stop().get()\ntrainer.stop().get()")


@pytest.fixture
def stopped(kernel: Kernel) -> Iterator[psutil.Process]:
    """Rank 1 of the mesh of its own, which does not move."""
    kernel.ok(TRAINER + "from meshbook import this_host" + OWN)
    yield stop(kernel.value("procs.roster.states[1].pid"))
    kernel.ok("procs.stop().get()\ntrainer.stop().get()")


def test_so_does_one_whose_rank_is_stopped(kernel: Kernel, stopped: psutil.Process) -> None:
    cell = kernel.start("own.step.call([0, 1]).get()")
    cell.until(f"stopped (SIGSTOP): kill -CONT {stopped.pid} goes on, kill -KILL {stopped.pid} ends it\n")
    stopped.resume()
    assert cell.end().status == "ok"
    awaited = stop(kernel.pids()[1])
    try:
        cell = kernel.start("await trainer.step.call(range(4))")
        cell.until(f"kill -CONT {awaited.pid} goes on, `%mesh interrupt 1 --kill` ends it\n")
    finally:
        awaited.resume()
    assert cell.end().status == "ok"


LATE = """
import torch
from meshbook.runtime.tensors import inspect, remote

def late(x, gate):
    import os, time
    while os.environ["RANK"] == "1" and not os.path.exists(gate):
        time.sleep(0.01)
    return x

with m.activate():
    x = torch.ones(2)
"""


def test_so_does_one_that_waits_for_a_distributed_tensor(kernel: Kernel, tmp_path: Path) -> None:
    """With the line at which the notebook has asked for it: on the ranks no code of the user's runs."""
    kernel.ok(LATE)
    gate = tmp_path / "gate"
    cell = kernel.start(
        f"y = remote(late, propagate=lambda x, _: x)(x, {str(gate)!r})\nz = y.reduce('tp', 'sum')\ninspect(z)"
    )
    cell.until("issued none: `%mesh interrupt`")
    assert re.search(
        r"rank 0 waits in all_reduce #\d+ \(1,\) of the group of ranks 0-1 at cell \d+, line 2;", cell.text
    )
    stacks = kernel.start_aside("%mesh stacks").end().text
    assert re.search(r"cell \d+, line 2 +z = y\.reduce\('tp', 'sum'\)", stacks)
    assert re.search(r"cell \d+, line [67], in late +(while|time)", stacks)
    gate.touch()
    assert "tensor([2., 2.])" in cell.end().text
