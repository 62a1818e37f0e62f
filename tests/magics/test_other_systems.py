"""Where Linux's own tools are missing, as on macOS: ranks are executed, over zmq, and all works as it should.

A kernel and its ranks that find neither epoll nor memfds, pidfds, SEQPACKET, eventfds, real-time signals, `/proc`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import Leaks
from tests.magics.front_end import Kernel

ACTORS = """
from meshbook import Actor, endpoint

class Adder(Actor):
    @endpoint
    def add(self, a):
        return a + 1

class Caller(Actor):
    def __init__(self, others):
        self.others = others
    @endpoint
    def ask(self, a):
        return sum(value for _, value in self.others.add.call(a).get().items())

m.spawn("callers", Caller, m.spawn("adders", Adder)).ask.call(1).get(20).values()
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    # A profile that imports ours would do so before this is another system.
    kernel = Kernel(before=Path(__file__).parent / "as_macos", prepare=lambda profile: None)
    kernel.ok("import sys; sys.platform = 'darwin'")
    kernel.ok("%load_ext meshbook")
    kernel.ok("m = %mesh up r=2 --device cpu")
    yield kernel
    kernel.close()


def test_output_comes_in_order_also_from_c(kernel: Kernel) -> None:
    outputs = kernel.ok("%%on_mesh\nimport os\nprint('first')\n_ = os.system('echo from C')\nprint('last')\nrank")
    assert [line.split("│ ")[-1] for line in outputs.text.splitlines()[:3]] == ["first", "from C", "last"]


def test_collectives(kernel: Kernel) -> None:
    outputs = kernel.ok(
        "%%on_mesh\nimport torch.distributed as dist, torch\nx = torch.ones(1) + rank\ndist.all_reduce(x)\nx.item()"
    )
    assert "3.0   ranks 0-1" in outputs.text


def test_the_process_of_a_rank_is_that_of_its_cells(kernel: Kernel) -> None:
    """Libraries find its shell, and `pickle` its classes: also of a rank that was not forked, as on CUDA."""
    outputs = kernel.ok(
        "%%on_mesh\nimport IPython, pickle\nclass A: pass\n"
        "IPython.get_ipython() is get_ipython(), type(pickle.loads(pickle.dumps(A()))) is A"
    )
    assert "(True, True)   ranks 0-1" in outputs.text


def test_a_task_goes_on_between_cells(kernel: Kernel) -> None:
    kernel.ok("%%on_mesh\nimport asyncio\ndone = []\nasync def work():\n  await asyncio.sleep(0.001)\n  done.append(1)")
    kernel.ok("%%on_mesh\ntask = asyncio.create_task(work())")
    while "1   ranks 0-1" not in kernel.ok("%%on_mesh\nlen(done)").text:
        """A plain cell; the task goes on before it."""


def test_actors_call_each_other(kernel: Kernel) -> None:
    assert kernel.ok(ACTORS).results == ["[4, 4]"]


def test_ctrl_c_leaves_the_ranks_idle(kernel: Kernel) -> None:
    cell = kernel.start("%%on_mesh\nimport time\nprint('in')\nwhile True:\n    time.sleep(0.01)")
    cell.until_all(2, "in")
    kernel.interrupt()
    assert "ranks 0-1 at cell" in cell.end().text
    assert "0   rank 0" in kernel.ok("%%on_mesh\nrank").text


def test_a_rank_that_was_killed_comes_back(kernel: Kernel, leaks: Leaks) -> None:
    outputs = kernel.cell("%%on_mesh 1\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    assert outputs.status == "error" and "killed by SIGKILL" in outputs.text
    assert "rank 1 is back" in kernel.ok("%mesh restart @dead").text
    leaks.allow_what_stands()  # the new rank
    assert re.search(r"\(1, True\) +rank 1", kernel.ok("%%on_mesh\n(rank, 'os' in globals())").text)


def test_large_values_travel(kernel: Kernel) -> None:
    kernel.ok("import torch\nbig = torch.arange(1_000_000)\n%mesh push big")
    assert "999999" in kernel.ok("%%on_mesh\nbig[-1].item()").text


def test_fork_is_refused_in_a_line(kernel: Kernel) -> None:
    outputs = kernel.cell("%mesh up other r=1 --spawn fork")
    assert outputs.status == "error" and "forking is not safe on darwin; use --spawn exec" in outputs.text


def test_no_rank_outlives_a_kernel_that_is_killed(kernel: Kernel) -> None:
    ranks = [psutil.Process(pid) for pid in kernel.pids().values()]
    assert len(ranks) == 2
    os.kill(kernel.pid, 9)
    gone, alive = psutil.wait_procs(ranks, timeout=10)
    assert not alive and len(gone) == 2
