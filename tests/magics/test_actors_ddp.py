"""Actors that train with DistributedDataParallel, whose backward no interrupt ends: what the notebook says to do."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.real]

TRAINER = """
import os
from meshbook import Actor, endpoint

class Trainer(Actor):
    def __init__(self):
        self.wrap()

    @endpoint
    def build(self):
        self.wrap()

    def wrap(self):
        import torch
        self.model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))

    @endpoint
    def step(self, bad=None):
        import torch
        loss = self.model(torch.ones(8, 4)).sum()
        if int(os.environ["RANK"]) == bad:
            raise RuntimeError("bad batch")
        loss.backward()
        return 1

trainer = m.spawn("trainer", Trainer)
trainer.step.call().get()
"""

KILL = "import os, signal; os.kill(m2.roster.states[1].pid, signal.SIGKILL)"

SUM = """%%on_mesh -m m2
import torch
ones = torch.ones(1)
torch.distributed.all_reduce(ones)
int(ones)
"""

SHARD = """
from meshbook import Actor, endpoint

class Shard(Actor):
    def __init__(self):
        import torch, torch.distributed as dist
        self.mine = dist.get_rank()

    @endpoint
    def which(self):
        return self.mine

shards = m2.spawn("shards", Shard)
shards.which.call().get()
"""

RING = "dist.send(torch.ones(1), 1) if not self.mine else dist.recv(torch.ones(1), 0) if self.mine == 1 else None"


def test_a_backward_that_hangs_is_broken_off_and_the_model_goes_on(kernel: Any) -> None:
    kernel.ok(TRAINER)
    failed = kernel.cell("trainer.step.call(bad=3).get()")
    assert "bad batch" in failed.error and "actors on ranks 0-2 of m go on" in failed.stderr
    left = kernel.ok("%mesh interrupt").stdout
    assert "in what no interrupt ends: `%mesh unstick 0-2` frees them from a collective" in left
    freed = kernel.ok("%mesh unstick 0-2").stdout
    assert (
        freed.startswith("ranks 0-2 are free; they were at ")
        and " in step\n" in freed
        and "process groups renewed" in freed
    )
    assert "0-3: 1" in kernel.ok("trainer.step.call().get()").text
    kernel.ok("trainer.stop().get()")


@pytest.fixture
def spare(kernel: Any) -> Generator[Any]:
    """A mesh whose ranks may die."""
    kernel.ok("m2 = %mesh up m2 dp=3")
    yield kernel
    kernel.ok("%mesh down m2")


def test_a_constructor_that_communicates_is_for_all_ranks(spare: Any) -> None:
    spare.ok(TRAINER.replace("m.spawn", "m2.spawn"))
    spare.ok(KILL)
    back = spare.ok("%mesh restart 1").stdout
    why = "its constructor communicates (it waits in "
    assert f"trainer could not be made again: {why}" in back
    assert "for ranks that live on): stop it, and spawn it on all ranks again" in back
    after = spare.ok(SUM)
    assert "3   ranks 0-2" in after.text and not after.stderr
    old = spare.cell("trainer.slice(dp=0).step.call().get()").traceback
    assert "↻ the process groups were made anew before: what was built on the old ones (Distrib" in old
    spare.ok("trainer.stop().get()")
    spare.ok("trainer = m2.spawn('trainer', Trainer)")
    assert "0-2: 1" in spare.ok("trainer.step.call().get()").text
    assert "could not" not in spare.ok("%mesh restart").stdout  # all of them are there to communicate
    assert "0-2: 1" in spare.ok("trainer.step.call().get()").text


def test_one_that_communicates_is_freed_where_the_restart_is_stopped(spare: Any) -> None:
    spare.ok(SHARD.replace("dist.get_rank()", "dist.get_rank()\n        print('waits', flush=True); dist.barrier()"))
    cell = spare.start("%mesh restart 1")
    cell.until("waits")
    spare.interrupt()
    assert cell.end().error.startswith("KeyboardInterrupt: rank 1 is back, but not set up to the end")
    assert "3   ranks 0-2" in spare.ok(SUM).text


def test_a_constructor_that_asks_for_its_rank_is_made_again(spare: Any) -> None:
    spare.ok(SHARD)
    spare.ok(KILL)
    assert "could not" not in spare.ok("%mesh restart 1").stdout
    assert "[0, 1, 2]" in spare.ok("shards.which.call().get().values()").text


def test_a_constructor_that_waits_for_a_message_is_freed(spare: Any) -> None:
    spare.ok(SHARD.replace("dist.get_rank()", "dist.get_rank()\n        " + RING))
    spare.ok(KILL)
    assert "(it waits in recv for ranks that live on)" in spare.ok("%mesh restart 1").stdout
    assert "3   ranks 0-2" in spare.ok(SUM).text
