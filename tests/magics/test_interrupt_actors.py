"""`%mesh interrupt` and the stop button, while actors work: who goes on is named, and the next collective is right."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.magics.front_end import Kernel

pytestmark = [pytest.mark.slow, pytest.mark.real]


TRAINER = """
import torch
import torch.distributed as dist
from meshbook import Actor, endpoint

class Trainer(Actor):
    @endpoint
    def step(self, value, late=()):
        print("in")
        while dist.get_rank() in late:
            pass
        if value == "wrong" and dist.get_rank() == 1:
            raise ValueError("one of them")
        total = torch.tensor([float(value)]) if value != "wrong" else torch.ones(1)
        dist.all_reduce(total)
        return total.item()

    def __cleanup__(self, exc):
        print("ends")
        while dist.get_rank() in getattr(self, "late", ()):
            pass

    @endpoint
    def hold_the_end(self, late):
        self.late = late

trainer = m.spawn("trainer", Trainer)
trainer.step.call(1).get()
"""


@pytest.fixture
def trainers(kernel: Kernel) -> Iterator[Kernel]:
    kernel.ok(TRAINER)
    yield kernel
    kernel.ok("trainer.stop().get()")


def test_where_a_call_fails_on_one_the_others_are_named(trainers: Kernel) -> None:
    failed = trainers.cell("trainer.step.call('wrong').get()")
    assert failed.error.startswith("ActorError") and "ValueError: one of them" in failed.error
    assert "actors on ranks 0,2-3 of m go on: `%mesh interrupt -m m` interrupts them" in failed.stderr
    assert "trainer.step" in trainers.ok("%mesh interrupt").stdout
    assert "4.0" in trainers.ok("trainer.step.call(1).get()").text
    assert "go on" not in trainers.cell("trainer.nope.call().get()").stderr


def test_the_stop_button_ends_the_wait_and_names_who_goes_on(trainers: Kernel) -> None:
    cell = trainers.start("answer = trainer.step.call(1, late=[2])\nanswer.get()")
    cell.until_all(4, "in")
    trainers.interrupt()
    ended = cell.end()
    assert ended.error.startswith("KeyboardInterrupt")
    assert "of m go on: `%mesh interrupt -m m` interrupts them, `%mesh stacks` tells where they are" in ended.stderr
    assert "trainer.step" in trainers.ok("%mesh interrupt").stdout
    assert "KeyboardInterrupt: interrupted" in trainers.cell("answer.get()").error


def test_a_cell_that_is_stopped_beside_an_actor_does_not_call_its_ranks_idle(trainers: Kernel) -> None:
    trainers.ok("answer = trainer.step.call(1, late=[2])")
    cell = trainers.start("%%on_mesh\nprint('begun')\nwhile True: pass")
    cell.until_all(4, "begun")
    trainers.interrupt()
    ended = cell.end()  # nothing of the all_reduce in which the actor waits; one may be at its print still
    assert re.search(r"interrupted: (ranks? [\d,-]+ at cell \d+ line [23](, )?)+; state kept$", ended.error)
    assert "actors on ranks 0-3 of m go on" in ended.stderr
    assert "trainer.step" in trainers.ok("%mesh interrupt").stdout


def test_actors_that_were_interrupted_in_a_collective_are_in_step_again(trainers: Kernel) -> None:
    for value in (2, 3):
        trainers.ok(f"answer = trainer.step.call({value}, late=[1])")
        trainers.ok(
            "while not any(one['is_open'] and len(one['ranks']) == 3 for one in m.ledger().data()['collectives']): pass"
        )
        assert trainers.ok("%mesh interrupt").stdout == (
            "interrupted: ranks 0-3 in trainer.step\n"
            "process groups renewed, as they were out of step: models go on with them\n"
        )
        assert trainers.value(f"trainer.step.call({value}).get().item(dp=0, tp=0)") == 4.0 * value


def test_a_cleanup_that_holds_a_stop_is_interrupted(trainers: Kernel) -> None:
    trainers.ok("last = m.spawn('last', Trainer)\nlast.hold_the_end.call([3]).get()")
    cell = trainers.start("last.stop().get()")
    cell.until_all(4, "ends")
    trainers.interrupt()
    # Others may have said their last word and not have answered yet.
    assert re.match(r"actors on ranks? (\d-|\d,)*3 of m go on", cell.end().stderr)
    assert trainers.ok("%mesh interrupt").stdout == "interrupted: rank 3 in last.__cleanup__\n"


def test_who_does_not_leave_is_killed_with_the_mesh(kernel: Kernel) -> None:
    kernel.ok("brief = %mesh up brief dp=2\n" + TRAINER.replace("m.spawn", "brief.spawn"))
    kernel.ok("endless = trainer.step.call(1, late=[0, 1])")
    down = "mesh 'brief' is down: ranks 0-1 killed by SIGKILL (signal 9), not having left within 0.2 s\n"
    assert kernel.ok("%mesh down brief --grace 0.2").stdout == down
