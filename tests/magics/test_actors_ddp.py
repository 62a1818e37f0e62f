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


def test_a_backward_that_hangs_is_broken_off_and_the_model_built_again(kernel: Any) -> None:
    kernel.ok(TRAINER)
    failed = kernel.cell("trainer.step.call(bad=3).get()")
    assert "bad batch" in failed.error and "actors on ranks 0-2 of m go on" in failed.stderr
    left = kernel.ok("%mesh interrupt").stdout
    assert "in what no interrupt ends: `%mesh unstick 0-2` frees them from a collective" in left
    freed = kernel.ok("%mesh unstick 0-2").stdout
    assert freed.startswith("ranks 0-2 are free\n") and "new process groups" in freed
    old = kernel.cell("trainer.step.call().get()").traceback
    assert "↻ the process groups were made anew before: what was built on the old ones (Distrib" in old
    kernel.ok("trainer.build.call().get()")
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
    spare.ok("import signal; os.kill(m2.roster.states[1].pid, signal.SIGKILL)")
    back = spare.ok("%mesh restart 1").stdout
    assert "trainer could not be made again: trainer.__init__ on rank 1" in back
    assert "its constructor needs process groups: `trainer.stop()`, and spawn it on all ranks again" in back
    spare.ok("trainer.stop().get()")
    spare.ok("trainer = m2.spawn('trainer', Trainer)")
    assert "0-2: 1" in spare.ok("trainer.step.call().get()").text
