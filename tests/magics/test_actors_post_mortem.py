"""`%mesh debug --pm` after an actor has failed: its frames, and how long they are kept."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.real

ACTORS = """
import os, torch
from meshbook import Actor, endpoint

def rank():
    return int(os.environ["RANK"])

class Trainer(Actor):
    def __init__(self, options=None):
        if options is not None:
            momentum = options["momentum"]
        self.weight = 3

    @endpoint
    def step(self, x):
        batch = torch.ones(1000, 1000)
        return self.inverse(x * self.weight) if rank() == 3 else x

    def inverse(self, y):
        z = y - 21
        return 1 / z

    @endpoint
    def exhaust(self):
        wanted = 5
        raise MemoryError("no room")

    @endpoint
    def fine(self):
        return 1

class Awaiting(Actor):
    @endpoint
    async def fetch(self, url):
        parts = url.split("/")
        raise LookupError(url)
"""

NOTHING = "no rank has an error to look at"


@pytest.fixture(scope="module")
def prepared(shared_kernel: Any) -> Any:
    shared_kernel.ok(ACTORS)
    return shared_kernel


@pytest.fixture
def trainer(prepared: Any) -> Any:
    prepared.ok("%%on_mesh\nNone")  # drops what the test before has left
    prepared.ok("trainer = m.spawn('trainer', Trainer); trainer.fine.call().get()")
    yield prepared
    prepared.ok("trainer.stop().get()")


def pm(kernel: Any, *commands: str, line: str = "%mesh debug --pm") -> tuple[list[str], str]:
    """The prompts, and all that was shown."""
    cell = kernel.start(line)
    prompts = cell.talk(*commands)
    return prompts, cell.end().stdout


def test_the_frames_of_an_endpoint(trainer: Any) -> None:
    failed = trainer.cell("trainer.step.call(7).get()").traceback
    assert failed.endswith("ZeroDivisionError: division by zero\nlook inside: %mesh debug --pm")
    prompts, told = pm(trainer, "p z", "u", "p self.weight, batch.shape", "q")
    assert prompts == ["rank 3 ipdb> "] * 4
    assert "rank 3 (dp=1,tp=1) after its error" in told and "inverse()" in told and "/ipykernel_" not in told
    assert "return 1 / z" in told and "\n0\n" in told and "(3, torch.Size([1000, 1000]))" in told


def test_percent_debug_looks_at_it_there_too(trainer: Any) -> None:
    trainer.cell("trainer.step.call(7).get()")
    prompts, told = pm(trainer, "p z", "q", line="%debug")
    assert prompts == ["rank 3 ipdb> "] * 2 and "the error is on the ranks: `%mesh debug --pm -m m`" in told
    trainer.ok("trainer.fine.call().get()")
    assert pm(trainer, "q", line="%debug")[0] == ["ipdb> "], "it was dropped there: the notebook's own frames"


def test_until_the_actor_is_called_again_or_a_cell_runs(trainer: Any) -> None:
    trainer.cell("trainer.step.call(7).get()")
    assert "no error was left there" in trainer.cell("%mesh debug 0 --pm").text
    trainer.ok("other = m.spawn('other', Trainer)\nother.fine.call().get(); other.stop().get()")
    trainer.ok("trainer.slice(dp=0).fine.call().get()")
    prompts, told = pm(trainer, "q")
    assert prompts == ["rank 3 ipdb> "] and "rank 3" in told
    trainer.ok("%%on_mesh 3\nNone")
    assert NOTHING in trainer.cell("%mesh debug --pm").text


def test_what_failed_last_on_a_rank(trainer: Any) -> None:
    trainer.cell("%%on_mesh 3\nraise KeyError('of the cell')")
    trainer.cell("trainer.step.call(7).get()")
    _, told = pm(trainer, "q", line="%mesh debug 3 --pm")
    assert "return 1 / z" in told
    trainer.cell("%%on_mesh 3\nraise KeyError('of the cell')")
    _, told = pm(trainer, "q", line="%mesh debug 3 --pm")
    assert "of the cell" in told


def test_an_actor_that_is_stopped_leaves_nothing(trainer: Any) -> None:
    trainer.cell("trainer.step.call(7).get()")
    trainer.ok("trainer.stop().get()")
    assert NOTHING in trainer.cell("%mesh debug --pm").text
    trainer.ok("trainer = m.spawn('trainer', Trainer)")


def test_a_constructor_and_a_coroutine(trainer: Any) -> None:
    failed = trainer.cell("made = m.slice(dp=1, tp=0).spawn('made', Trainer, {'lr': 1})\nmade.fine.call_one().get()")
    assert "KeyError: 'momentum'" in failed.text and failed.text.rstrip().endswith("look inside: %mesh debug --pm")
    _, told = pm(trainer, "p options", "q")
    assert "__init__()" in told and "{'lr': 1}" in told
    trainer.cell("m.slice(dp=1, tp=0).spawn('web', Awaiting).fetch.call_one('a/b').get()")
    _, told = pm(trainer, "p parts", "q")
    assert "['a', 'b']" in told


def test_of_one_for_want_of_memory_a_text(trainer: Any) -> None:
    assert "no room" in trainer.cell("trainer.slice(dp=1, tp=1).exhaust.call_one().get()").text
    told = trainer.ok("%mesh debug --pm").stdout
    assert "memory had run out, so the frames were let go" in told
    assert "3 │ MemoryError: no room" in told and "wanted = 5" in told


def test_the_hint_is_for_meshes_that_have_a_debugger(trainer: Any) -> None:
    trainer.ok("from meshbook import this_host\nprocs = this_host().spawn_procs({'r': 1})")
    trainer.ok("own = procs.spawn('own', Awaiting)")
    assert "look inside" not in trainer.cell("own.fetch.call_one('a').get()").text
    trainer.ok("%mesh up other dp=1")
    named = trainer.cell("trainer.step.call(7).get()").text
    assert named.rstrip().endswith("look inside: %mesh debug --pm -m m")
    _, told = pm(trainer, "p z", "q", line="%mesh debug --pm -m m")
    assert "\n0\n" in told
    trainer.ok("%mesh down other\nprocs.stop().get()")
    assert "look inside" not in trainer.cell("trainer.nope").text
