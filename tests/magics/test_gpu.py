"""What only a GPU shows: four ranks that share it over nccl, and one that has it alone. Skipped where there is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from meshbook.runtime.system.devices import num_gpus
from tests.conftest import Leaks
from tests.magics.front_end import Kernel

pytestmark = pytest.mark.skipif(not num_gpus(), reason="needs a GPU")

SUM = "%%on_mesh\nz = torch.ones(2, device=device)\ndist.all_reduce(z)\nz.tolist()"
MODEL = """%%on_mesh
from torch.nn.parallel import DistributedDataParallel
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def step():
    loss = model(torch.full((2, 4), 1.0 + rank, device=device)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return sum(parameter.sum() for parameter in model.parameters()).item()
"""
FAILED = """%%on_mesh
if rank == 2:
    raise ValueError("no batch left")
dist.all_reduce(z)
z.sum().item()
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    kernel = Kernel()
    kernel.ok("%load_ext meshbook")
    kernel.ok("m = %mesh up dp=2 tp=2 --device shared")
    kernel.ok("%%on_mesh\nimport time, torch, torch.distributed as dist")
    yield kernel
    kernel.close()


@pytest.fixture(scope="module")
def alone() -> Iterator[Kernel]:
    kernel = Kernel()
    kernel.ok("%load_ext meshbook")
    kernel.ok("m = %mesh up gpus=1 --device cuda")
    kernel.ok("%%on_mesh\nimport torch")
    yield kernel
    kernel.close()


def sums(kernel: Kernel) -> None:
    assert "[4.0, 4.0]   ranks 0-3" in kernel.ok(SUM).text


def test_ranks_share_a_gpu_over_nccl(kernel: Kernel) -> None:
    sums(kernel)
    assert "'cpu:gloo,cuda:nccl'   ranks 0-3" in kernel.ok("%%on_mesh\ndist.get_backend()").text
    part = "%%on_mesh dp=1\ny = torch.full((1,), float(rank), device=device)\ndist.all_reduce(y, group=group)\ny.item()"
    assert "5.0   ranks 2-3" in kernel.ok(part).text


def test_a_model_goes_on_after_a_cell_that_failed_in_a_collective(kernel: Kernel) -> None:
    kernel.ok(MODEL)
    kernel.ok("%%on_mesh\nbefore = step()")
    failed = kernel.cell(FAILED)
    assert "rank 2 has issued only" in failed.text and "process groups renewed" in failed.text
    assert "ranks 0-3" in kernel.ok("%%on_mesh\nstep()").text  # one answer, the same on all
    sums(kernel)


def test_what_waits_in_a_collective_is_freed(kernel: Kernel) -> None:
    cell = kernel.start("%%on_mesh -b\nif rank:\n    dist.all_reduce(z)\n    z.sum().item()")
    cell.end()
    assert "ranks 1-3 are free" in kernel.ok("%mesh unstick").text
    assert "ranks 0-3" in kernel.ok("%%on_mesh\nstep()").text
    sums(kernel)


def test_who_waits_on_the_gpu_for_a_rank_that_was_stopped_is_freed_by_the_same_press(kernel: Kernel) -> None:
    cell = kernel.start("%%on_mesh\nprint('in')\nif rank == 3:\n    time.sleep(60)\ndist.all_reduce(z)\nz.sum().item()")
    cell.until_all(4, "in")
    kernel.interrupt()
    assert "they are idle" in cell.end().error
    sums(kernel)


def test_ranks_outlive_the_death_of_one_that_they_wait_for(kernel: Kernel, leaks: Leaks) -> None:
    pids = kernel.pids()
    kill = "import os, signal\nif rank == 3:\n    os.kill(os.getpid(), signal.SIGKILL)"
    died = kernel.cell(f"%%on_mesh\n{kill}\ndist.all_reduce(z)\nz.cpu()")
    assert "1 of 4 ranks lost" in died.text
    assert "rank 3 is back" in kernel.ok("%mesh restart @dead").text
    leaks.allow_what_stands()  # the new rank
    kernel.ok("%%on_mesh\nimport torch, torch.distributed as dist")
    sums(kernel)
    now = kernel.pids()
    assert {rank: now[rank] for rank in range(3)} == {rank: pids[rank] for rank in range(3)}


def test_a_lost_gpu_comes_back_with_a_new_process(alone: Kernel, leaks: Leaks) -> None:
    broken = "%%on_mesh\ntorch.zeros(4, device=device)[torch.tensor([10], device=device)]\ntorch.cuda.synchronize()"
    assert "rank 0 can use its GPU no more: %mesh restart 0" in alone.cell(broken).text
    alone.ok("%mesh restart 0")
    leaks.allow_what_stands()  # the new rank
    alone.ok("%%on_mesh\nimport torch")
    assert "3.0   rank 0" in alone.ok("%%on_mesh\ntorch.ones(3, device=device).sum().item()").text


def test_what_the_frames_of_a_failed_cell_held_is_free_in_the_next(alone: Kernel) -> None:
    body = "    batch = torch.empty(1 << 30, dtype=torch.uint8, device=device)\n    raise ValueError"
    assert "rank 0 holds 1" in alone.cell(f"%%on_mesh\ndef fail():\n{body}\nfail()").text
    assert "True   rank 0" in alone.ok("%%on_mesh\ntorch.cuda.memory_allocated() < 1 << 20").text


def test_a_mesh_shows_what_its_gpu_does(alone: Kernel) -> None:
    pytest.importorskip("pynvml")
    assert "GB of" in alone.ok("%mesh dash").text


def test_a_rank_that_has_compiled_leaves_in_good_order(alone: Kernel) -> None:
    alone.ok("%%on_mesh\ntorch.compile(lambda x: x.sin().sum())(torch.ones(8, device=device)).item()")
    assert "rank 0 exited with code 0" in alone.ok("%mesh down").text
