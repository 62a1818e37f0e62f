"""However the notebook ends, its ranks end with it."""

from __future__ import annotations

from collections.abc import Callable

import psutil
import pytest

from tests.magics.front_end import Kernel
from tests.profiles import leave_torch_out

pytestmark = [pytest.mark.slow, pytest.mark.real]


def children_of(kernel: Kernel) -> dict[int, int]:
    """Ranks, zygote, and all else that the kernel started."""
    children = psutil.Process(kernel.pid).children(recursive=True)
    return {number: child.pid for number, child in enumerate(children)} | {
        -1 - rank: pid for rank, pid in kernel.pids().items()
    }


@pytest.fixture
def own(new_kernel: Callable[..., Kernel]) -> Kernel:
    """A kernel of the test's own, with an idle rank and one that works."""
    kernel = new_kernel(prepare=leave_torch_out)
    kernel.ok("%load_ext meshbook")
    kernel.ok("%mesh up dp=2 --pg none")
    kernel.start("%%on_mesh 1 -b\nimport time\nprint('in')\ntime.sleep(600)").until("in")
    return kernel


def test_unload_takes_everything_down(own: Kernel, gone: Callable[..., None]) -> None:
    pids = children_of(own)
    assert len(pids) >= 5  # a zygote, two ranks, and those two once more
    own.ok("%unload_ext meshbook")
    gone(pids)
    assert own.value("[t.name for t in __import__('threading').enumerate() if t.name.startswith('meshbook')]") == []
    refused = own.cell("%mesh")
    assert refused.error == "UsageError: Line magic function `%mesh` not found."
    assert own.cell("%%on_mesh\n1").error.startswith("UsageError: Cell magic `%%on_mesh` not found.")
    assert "%mesh restart" not in own.completions("%mesh res")
    own.ok("%load_ext meshbook")
    own.ok("%mesh up dp=1 --pg none")
    assert own.ok("%on_mesh -- rank").text.startswith("0   rank 0")


LAST_WORDS = """
import meshbook
class Talker(meshbook.Actor):
    @meshbook.endpoint
    def step(self):
        return 1
    def __cleanup__(self, exc):
        print("last words")
procs = meshbook.this_host().spawn_procs({"gpus": 2})
talkers = procs.spawn("talkers", Talker)
talkers.step.call().get()
"""


def test_actors_that_say_something_as_the_session_ends(new_kernel: Callable[..., Kernel]) -> None:
    kernel = new_kernel(prepare=leave_torch_out)
    kernel.ok("%load_ext meshbook")
    calling = kernel.start(LAST_WORDS)
    assert calling.end().status == "ok"
    ranks = psutil.Process(kernel.pid).children(recursive=True)
    kernel.ok("%unload_ext meshbook")
    calling.until("last words")
    assert len(ranks) >= 3 and psutil.wait_procs(ranks, 10)[1] == []  # with their zygote


def test_unload_takes_down_what_it_can_where_a_part_of_it_fails(own: Kernel, gone: Callable[..., None]) -> None:
    pids = children_of(own)
    own.ok("get_ipython().input_transformers_cleanup.clear()")  # ours with them: it cannot be removed any more
    assert own.cell("%unload_ext meshbook").error.startswith("ValueError: list.remove")
    gone(pids)
    assert own.cell("%mesh").error == "UsageError: Line magic function `%mesh` not found."
    own.ok("%unload_ext meshbook\n%load_ext meshbook")
    own.ok("%mesh up dp=1 --pg none")
    assert own.ok("%on_mesh -- rank").text.startswith("0   rank 0")


def test_restart_of_the_kernel(own: Kernel, gone: Callable[..., None]) -> None:
    pids = children_of(own)
    own.restart()
    gone(pids)
    own.ok("%load_ext meshbook")
    own.ok("%mesh up dp=2 --pg none")
    assert own.ok("%on_mesh -- world_size").text.startswith("2   ranks 0-1")


def test_shutdown_of_the_kernel(own: Kernel, gone: Callable[..., None]) -> None:
    pids = children_of(own)
    own.shut_down()
    gone(pids)


def test_death_of_the_kernel(own: Kernel, gone: Callable[..., None]) -> None:
    pids = children_of(own)
    own.kill()
    gone(pids)


def test_what_a_notebook_left_behind_is_reaped(
    own: Kernel, new_kernel: Callable[..., Kernel], gone: Callable[..., None]
) -> None:
    assert own.ok("%mesh reap").results == ["nothing is left behind"]
    # The lifeline leaves nothing, so an orphan is made on purpose: registered as a rank, without a lifeline.
    orphan = "orphan = subprocess.Popen(['sleep', '600'], start_new_session=True)"
    own.ok(f"import subprocess\nfrom meshbook.runtime.system.registry import registry\n{orphan}")
    own.ok("registry.note('mesh', {orphan.pid: 'rank 0'})")
    pid = own.value("orphan.pid")
    try:
        pid_of_kernel = own.pid
        own.kill()
        psutil.Process(pid_of_kernel).wait(10)
        other = new_kernel(prepare=leave_torch_out)
        other.ok("%load_ext meshbook")
        said = f"ended rank 0 (pid {pid}): its controller (pid {pid_of_kernel}) is gone"
        assert other.ok("%mesh reap").results == [said]
        gone({0: pid})
    finally:
        if psutil.pid_exists(pid):
            psutil.Process(pid).kill()


STATES = """
import ctypes, os, signal, subprocess, sys, time, torch, torch.distributed as dist
def busy():
    while True: pass
def deaf():
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True: pass
def in_c():
    ctypes.PyDLL(None).usleep(600_000_000)
def in_collective():
    dist.all_reduce(torch.ones(1))
def with_child():
    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
    print('child', child.pid)
    child.wait()
def stopped():
    os.kill(os.getpid(), signal.SIGSTOP)
states = [busy, deaf, in_c, in_collective, with_child, stopped]
"""


@pytest.mark.parametrize(
    "ending", ["the kernel is killed", "zygote, then kernel", "shut down", "restart", "%mesh down"]
)
def test_whatever_ranks_do_none_is_left(
    new_kernel: Callable[[], Kernel], gone: Callable[..., None], ending: str
) -> None:
    kernel = new_kernel()
    kernel.ok("%load_ext meshbook")
    kernel.ok("%mesh up dp=6 --device cpu")
    kernel.ok(f"%%on_mesh\n{STATES}")
    cell = kernel.start("%%on_mesh -b\nprint(states[rank].__name__)\nstates[rank]()")
    cell.until("child")
    cell.until("stopped")
    pids = children_of(kernel)
    assert len(set(pids.values())) >= 8  # a zygote, six ranks, and the child of one
    if ending == "%mesh down":
        staying = staying_among(pids, kernel)
        kernel.ok("%mesh down --grace 0.2")
        gone({number: pid for number, pid in pids.items() if pid not in staying}, 10)
        return
    if ending == "zygote, then kernel":
        for zygote in zygotes_among(pids):
            psutil.Process(zygote).kill()
    if ending == "shut down":
        kernel.shut_down()
    elif ending == "restart":
        kernel.restart()
    else:
        kernel.kill()
    gone(pids, 10)  # within 2 s on a machine that is not busy otherwise


def kernel_ranks(pids: dict[int, int]) -> set[int]:
    """The ranks among the processes of `children_of`."""
    return {pid for number, pid in pids.items() if number < 0}


def staying_among(pids: dict[int, int], kernel: Kernel) -> set[int]:
    """Those that outlive a mesh: the kernel's own zygote, but no agent, whose zygote has forked the ranks."""
    own = {child.pid for child in psutil.Process(kernel.pid).children()}
    return own - {psutil.Process(zygote).ppid() for zygote in zygotes_among(pids)}


def zygotes_among(pids: dict[int, int]) -> set[int]:
    """Those that fork: the parents of the ranks."""
    return {psutil.Process(pid).ppid() for pid in kernel_ranks(pids)}
