"""The debugger is left in every way there is: each ends in a mesh that can be used, and in a line that says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.profiles import leave_torch_out

pytestmark = [pytest.mark.real, pytest.mark.slow]

STOP_ALL = "%%on_mesh\nx = rank\nbreakpoint()\nx"

Gone = Callable[..., None]
Until = Callable[..., None]


@pytest.fixture
def stopped(new_kernel: Any) -> tuple[Any, Any, dict[int, int]]:
    """A kernel of its own with a mesh of two ranks that are stopped, the cell, and the ranks' processes."""
    kernel = new_kernel(prepare=leave_torch_out)
    kernel.ok("%load_ext meshbook")
    kernel.ok("m = %mesh up m dp=2 --device cpu --pg none")
    pids = kernel.pids()
    cell = kernel.start(STOP_ALL)
    cell.asked()
    return kernel, cell, pids


def test_the_kernel_is_shut_down(stopped: Any, gone: Gone) -> None:
    kernel, _, pids = stopped
    kernel.shut_down()
    gone(pids)


def test_the_kernel_is_restarted(stopped: Any, gone: Gone) -> None:
    kernel, _, pids = stopped
    kernel.restart()
    gone(pids)
    kernel.ok("%load_ext meshbook\nm = %mesh up m dp=2 --device cpu --pg none")
    assert "0-1" in kernel.ok("%%on_mesh\n'well'").text


def test_the_kernel_dies(stopped: Any, gone: Gone) -> None:
    kernel, _, pids = stopped
    kernel.kill()
    gone(pids, 10.0)


def test_the_mesh_is_taken_down(stopped: Any, gone: Gone) -> None:
    kernel, cell, pids = stopped
    kernel.start_aside("%mesh down").end()
    gone(pids)
    cell.type("p x")
    done = cell.end()
    assert done.status == "error" and "down" in done.text, done.text
    kernel.ok("m = %mesh up m dp=2 --device cpu --pg none")
    kernel.ok("%%on_mesh\nrank")


def test_the_front_end_goes_away_and_the_stop_button_of_another_frees_the_cell(stopped: Any) -> None:
    kernel, cell, _ = stopped
    kernel.reconnect()
    kernel.interrupt()
    cell.idle()
    assert "KeyboardInterrupt: interrupted" in cell.text
    assert "'well'   ranks 0-1" in kernel.ok("%%on_mesh\n'well'").text
    cell = kernel.start("%%on_mesh 0\nbreakpoint()\n'again'")
    cell.talk("c")
    assert "again" in cell.end().text


MAIN_AND_THREAD = """%%on_mesh 0
import threading
where = "main"
def work():
    where = "aside"
    breakpoint()
thread = threading.Thread(target=work, name="helper")
thread.start()
breakpoint()
thread.join()
'done'"""


def test_the_main_thread_and_another_of_one_rank_at_once(kernel: Any) -> None:
    cell = kernel.start(MAIN_AND_THREAD)
    cell.talk("p where", "c", "p where", "c")
    done = cell.end()
    assert "'done'" in done.text and "'main'" in done.stdout and "'aside'" in done.stdout, done.stdout


INIT = """
from meshbook import Actor, endpoint

class Born(Actor):
    def __init__(self):
        size = 7
        breakpoint()
        self.size = size

    @endpoint
    def get(self):
        return self.size

born = m.spawn("born", Born)
born.slice(dp=1, tp=1).get.call_one().get()
"""


def test_a_breakpoint_while_an_actor_is_made(kernel: Any) -> None:
    cell = kernel.start(INIT)
    cell.talk("p size", "q")
    done = cell.end()
    assert done.results == ["7"] and "in __init__" in done.stdout, done.text


LOADER = """%%on_mesh 1
class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        breakpoint()
        return i
sorted(int(x) for batch in torch.utils.data.DataLoader(Numbers(), num_workers=1) for x in batch)"""


def test_a_breakpoint_in_a_worker_of_a_data_loader(kernel: Any) -> None:
    done = kernel.cell(LOADER)
    assert "[0, 1, 2, 3]   rank 1" in done.text, done.text
    assert "passed over: breakpoint at cell" in done.stderr and "num_workers=0" in done.stderr
    cell = kernel.start(LOADER.replace("num_workers=1", "num_workers=0"))
    cell.talk("p i", "q")
    assert "[0, 1, 2, 3]   rank 1" in cell.end().text


AWAITING = """%%on_mesh 2
import asyncio
async def inner():
    kept = 5
    await asyncio.sleep(0)
    breakpoint()
    return kept
a = await inner()
a"""


def test_interact_is_left_by_exit_and_the_cell_goes_on(kernel: Any) -> None:
    cell = kernel.start("%%on_mesh 1\nfound = 3\nbreakpoint()\nfound")
    cell.talk("interact", "found * 14", "exit()", "p found + 10", "q")
    done = cell.end()
    assert "42" in done.text and "13" in done.stdout and "3   rank 1" in done.text


@pytest.mark.parametrize("last", ["await asyncio.sleep(60)", "breakpoint()"])
def test_abort_ends_a_cell_that_awaits(kernel: Any, last: str) -> None:
    cell = kernel.start(f"%%on_mesh 1\nimport asyncio\nasync def work():\n    print('in')\n    {last}\nawait work()")
    if "sleep" in last:
        cell.until("in")
        kernel.start_aside("%mesh debug 1").end()
    cell.talk("p 40 + 2", "%abort")
    done = cell.end()
    assert "42" in done.stdout and done.status == "error", done.text
    assert "'well'   ranks 0-3" in kernel.ok("%%on_mesh\n'well'").text


def test_a_breakpoint_in_code_that_is_awaited(kernel: Any) -> None:
    cell = kernel.start(AWAITING)
    cell.talk("p kept", "w", "n", "u", "c")
    done = cell.end()
    assert "5   rank 2" in done.text and "in inner" in done.stdout, done.text


BACKWARD = """%%on_mesh 3
w = torch.ones(2, requires_grad=True)
def hook(gradient):
    breakpoint()
    return gradient * 3
w.register_hook(hook)
(w * 2).sum().backward()
w.grad.tolist()"""


def test_a_breakpoint_in_a_backward_hook(kernel: Any) -> None:
    cell = kernel.start(BACKWARD)
    cell.talk("p gradient", "c")
    done = cell.end()
    assert "[6.0, 6.0]" in done.text and "in hook" in done.stdout, done.text


DDP = """%%on_mesh
from torch.nn.parallel import DistributedDataParallel
model = DistributedDataParallel(torch.nn.Linear(2, 1))
def hook(state, bucket):
    if rank == 1:
        breakpoint()
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    return allreduce_hook(None, bucket)
model.register_comm_hook(None, hook)
model(torch.ones(3, 2)).sum().backward()
[round(p.grad.sum().item(), 3) for p in model.parameters()]"""


def test_a_breakpoint_in_a_communication_hook_of_ddp(kernel: Any) -> None:
    cell = kernel.start(DDP)
    cell.talk("p bucket.index()", "c")
    done = cell.end()
    assert done.status == "ok" and "[6.0, 3.0]" in done.text, done.text


ACTOR = """
from meshbook import Actor, endpoint

class Looper(Actor):
    @endpoint
    def turn(self, n):
        for i in range(n):
            breakpoint()
        return n

looper = m.spawn("looper", Looper).slice(dp=0, tp=1)
"""


def test_leaving_holds_for_the_calls_of_this_cell_and_the_next_cell_stops_again(kernel: Any) -> None:
    kernel.ok(ACTOR)
    call = "[looper.turn.call_one(50).get() for _ in range(3)]"
    for _ in range(2):
        cell = kernel.start(call)
        cell.talk("c", "q")
        assert cell.end().results == ["[50, 50, 50]"]


def test_of_a_cell_that_ran_out_of_memory_a_summary_is_kept(kernel: Any) -> None:
    failed = kernel.cell("%%on_mesh dp=1\ndef grow(size):\n    return bytearray(size)\ngrow(10**15)")
    assert "MemoryError" in failed.text
    done = kernel.cell("%mesh debug --pm")
    assert done.status == "ok" and "memory had run out, so the frames were let go" in done.stdout
    assert "2-3 │ MemoryError" in done.stdout and "size = 1000000000000000" in done.stdout
    assert "no error was left there" not in done.stdout


def test_what_frames_hold_for_a_look_is_told(kernel: Any, until: Until) -> None:
    fill = "%%on_mesh 3\ndef fill():\n    batch = bytearray(200 << 20)\n    return 1 / 0\nfill()"
    told = "look inside (rank 3 holds 200 MB for it until the next cell): %mesh debug --pm"
    # Who does not answer within a fraction of a second is left out, and this machine may be busy.
    until(lambda: told in kernel.cell(fill).text, 20.0)
    until(lambda: "holds 200 MB for post-mortem" in kernel.ok("%mesh status").text, 20.0)
    kernel.ok("%%on_mesh\nNone")
    assert "post-mortem" not in kernel.ok("%mesh status").text


def test_cells_that_are_replayed_pass_their_breakpoints(stopped: Any) -> None:
    kernel, cell, _ = stopped
    cell.type("q")
    cell.end()
    assert "rank 1 is back" in kernel.cell("%mesh restart 1").text
    cell = kernel.start("%%on_mesh 1\nbreakpoint()\n'heeded'")
    cell.talk("p x", "c")
    assert "'heeded'" in cell.end().text
