"""Process groups in processes that a rank forks: they cannot use those of the rank, and may make their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from meshbook.kernel.mesh import Mesh
from tests.kernel.cells import SUM, ran, values

pytestmark = [pytest.mark.slow, pytest.mark.real]

FORKS = """
import multiprocessing, os, socket, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def told(use):
    try:
        return use()
    except RuntimeError as error:
        return str(error).partition(":")[0]

def in_child(use):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(told, (use,))
"""

OWN = """
def pair(rank, size, port):
    os.environ["MASTER_PORT"] = str(port)
    method = f"tcp://127.0.0.1:{port}" if is_by_address else None
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=size)
    net = DistributedDataParallel(torch.nn.Linear(1, 1))
    net(torch.ones(1)).backward()
    total = torch.ones(1)
    dist.all_reduce(total, group=dist.new_group([0, 1]))
    dist.destroy_process_group()
    queue.put(int(total))

context = multiprocessing.get_context("fork")
queue = context.Queue()
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
children = [context.Process(target=pair, args=(each, 2, port)) for each in range(2)]
[child.start() for child in children]
sums = [queue.get(timeout=60), queue.get(timeout=60)]
[child.join() for child in children]
[child.exitcode for child in children] + sums
"""


@pytest.fixture(scope="module")
def mesh(engine: str) -> Iterator[Mesh]:
    with Mesh.up("forks", {"dp": 2}, engine=engine, path=sys.path, preload=("torch._dynamo",)) as mesh:
        assert not ran(mesh, FORKS).progress.failed
        assert values(mesh, SUM) == ["3.0"] * 2
        yield mesh


@pytest.fixture(autouse=True)
def shared(leaks: Any) -> Iterator[None]:
    yield
    leaks.allow_what_stands()


@pytest.mark.parametrize(
    "use",
    [
        "dist.all_reduce(torch.ones(1))",
        "dist.broadcast_object_list([1])",
        "dist.monitored_barrier()",
        "dist.isend(torch.ones(1), 0)",
        "dist.new_group([0])",
        "DistributedDataParallel(torch.nn.Linear(1, 1))",
        "net(torch.ones(1))",
    ],
)
def test_a_forked_process_is_told_that_a_group_is_its_ranks(mesh: Mesh, use: str) -> None:
    """It has the rank's connections, and not the thread that serves them: it waited for ever."""
    cell = f"net = DistributedDataParallel(torch.nn.Linear(1, 1))\ndef use(): {use}\nin_child(use)"
    assert values(mesh, cell) == ['"a forked process cannot use its rank\'s process group"'] * 2
    assert values(mesh, SUM) == ["3.0"] * 2


def test_it_may_ask_which_rank_it_is_of_how_many(mesh: Mesh) -> None:
    """So do datasets in the workers of a DataLoader."""
    cell = "def place(): return dist.get_rank(), dist.get_world_size()\nin_child(place)"
    assert values(mesh, cell) == ["(0, 2)", "(1, 2)"]


def test_it_may_infer_with_a_model_of_the_rank(mesh: Mesh) -> None:
    model = "net = DistributedDataParallel(torch.nn.Linear(1, 1))"
    cell = f"{model}\n@torch.no_grad()\ndef use(): return net(torch.ones(1)).shape\nin_child(use)"
    assert values(mesh, cell) == ["torch.Size([1])"] * 2


def test_it_may_leave_the_groups(mesh: Mesh) -> None:
    cell = "def leave():\n    dist.destroy_process_group()\n    return dist.is_initialized()\nin_child(leave)"
    assert values(mesh, cell) == ["False"] * 2
    assert values(mesh, SUM) == ["3.0"] * 2


@pytest.mark.parametrize("is_by_address", [True, False])
def test_it_may_make_a_group_of_its_own(mesh: Mesh, is_by_address: bool) -> None:
    """It met in our store, over the connection of its rank; and the destructor of its rank's group aborted."""
    assert values(mesh, f"is_by_address = {is_by_address}\n{OWN}") == ["[0, 0, 2, 2]"] * 2
    assert values(mesh, SUM) == ["3.0"] * 2


LEAVES = """
import gc, time
gc.disable()
garbage = [dist.new_group([0, 1])]
dist.destroy_process_group(garbage[0])
garbage.append(garbage)
del garbage
if not (child := os.fork()):
    gc.collect()
    os._exit(0)
deadline = time.monotonic() + 20
while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < deadline:
    time.sleep(0.01)
if not ended[0]:
    os.kill(child, 9)
    os.waitpid(child, 0)
gc.enable()
gc.collect()
bool(ended[0])
"""


def test_groups_among_the_garbage_of_a_rank_stay_its_own(mesh: Mesh) -> None:
    """Else a child hangs whenever the collector comes: after a cell whose error holds a group that it has destroyed."""
    assert values(mesh, LEAVES) == ["True"] * 2
    assert values(mesh, SUM) == ["3.0"] * 2
