"""Meshes as values: views of the same ranks, and mistakes that are told before anything is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime.actor import Actor, endpoint
from meshbook.runtime.errors import MeshStopped
from tests.runtime.actors import GATE, Worker

if TYPE_CHECKING:
    from tests.runtime.conftest import Bench


def test_a_slice_is_a_view_of_the_same_actors(inproc: Bench):
    workers = inproc.workers({"dp": 2, "tp": 2})
    column = workers.slice(tp=1)
    assert column.sizes == {"dp": 2}
    column.add.call(5).get(10)
    assert workers.add.call(0).get(10).values() == [0, 5, 0, 5]
    assert workers.flatten("rank").slice(rank=3).add.call_one(1).get(10) == 6


def test_answers_know_their_points(inproc: Bench):
    workers = inproc.workers({"dp": 2, "tp": 3})
    answers = workers.slice(tp=slice(1, 3)).rank.call().get(10)
    assert answers.sizes == {"dp": 2, "tp": 2}
    assert {(point["dp"], point["tp"]): rank for point, rank in answers} == {(0, 0): 1, (0, 1): 2, (1, 0): 4, (1, 1): 5}


def test_actors_of_one_class_on_parts_of_a_mesh_do_not_mix(inproc: Bench):
    procs = inproc.up({"rank": 4})
    low = procs.slice(rank=slice(0, 2)).spawn("low", Worker, 10)
    high = procs.slice(rank=slice(2, 4)).spawn("high", Worker, 20)
    assert low.add.call(1).get(10).values() == [11, 11]
    assert high.rank.call().get(10).values() == [2, 3]
    assert high.add.call(1).get(10).values() == [21, 21]


def test_answers_stream_in_the_order_they_come(inproc: Bench):
    workers = inproc.workers({"rank": 3})
    GATE.clear()
    busy = workers.slice(rank=0).do.call_one("from tests.runtime.actors import GATE\nGATE.wait(10)")
    stream = workers.rank.stream()
    assert {next(stream).get(10), next(stream).get(10)} == {1, 2}
    last = next(stream)
    assert not last.done()
    GATE.set()
    assert last.get(10) == 0
    assert busy.get(10)
    with pytest.raises(StopIteration):
        next(stream)


class Taken(Actor):
    @endpoint
    def slice(self) -> None: ...


class Awaited(Actor):
    async def __init__(self) -> None: ...  # pyright: ignore


@pytest.mark.parametrize(
    ("mistake", "kind", "text"),
    [
        (
            lambda procs, w: procs.spawn("x", int),
            ValueError,
            "is not an Actor, and must subclass it: write `class Name",
        ),
        (lambda procs, w: procs.spawn("x", Worker()), TypeError, "is not a class: give the class itself"),
        (lambda procs, w: procs.spawn(3, Worker), TypeError, "the name of actors is a str, not 3"),
        (lambda procs, w: procs.spawn("x", Taken), ValueError, "cannot be called 'slice'"),
        (lambda procs, w: procs.spawn("x", Awaited), ValueError, "Awaited.__init__ cannot be async def"),
        (lambda procs, w: procs.spawn("x", Worker, 1, 2), TypeError, "too many positional"),
        (lambda procs, w: procs.spawn("x", Worker, begin=1), TypeError, "begin"),
        (lambda procs, w: w.add.call(), TypeError, "'n'"),
        (lambda procs, w: w.add.call(1, 2), TypeError, "too many positional"),
        (lambda procs, w: w.add.call(m=1), TypeError, "'[mn]'"),
        (lambda procs, w: w.add.call_one(1), ValueError, "requires exactly 1 actor, but mesh has 2"),
        (lambda procs, w: w.add(1), TypeError, r"say how to call it, .call\(...\)"),
        (lambda procs, w: w.ad, AttributeError, "has no endpoint 'ad'.*add"),
        (lambda procs, w: procs.slice(dp=0).stop(), ValueError, "not owned; .*: stop the whole mesh"),
    ],
)
def test_mistakes(inproc: Bench, mistake: Callable[..., Any], kind: type[Exception], text: str):
    procs = inproc.up({"dp": 2})
    workers = procs.spawn("workers", Worker)
    with pytest.raises(kind, match=text):
        mistake(procs, workers)
    assert workers.add.call(1).get(10).values() == [1, 1]


def test_meshes_say_what_they_are(inproc: Bench):
    procs = inproc.up({"dp": 2, "tp": 1})
    workers = procs.spawn("workers", Worker)
    assert repr(procs).startswith("<ProcMesh {dp=2,tp=1}")
    assert repr(workers).startswith("<ActorMesh workers")
    procs.stop().get(10)
    assert "stopped" in repr(procs)


def test_a_with_block_ends_the_mesh(inproc: Bench):
    with inproc.up() as procs:
        assert procs.spawn("workers", Worker).add.call(1).get(10).values() == [1, 1]
    assert procs.roster.is_stopped

    async def main() -> list[int]:
        async with inproc.up() as procs:
            workers = procs.spawn("workers", Worker)
            await workers.initialized
            answers = (await workers.add.call(2)).values()
        assert procs.roster.is_stopped
        return answers

    assert asyncio.run(main()) == [2, 2]


def test_a_with_block_that_fails_ends_the_mesh_too(inproc: Bench):
    with pytest.raises(ZeroDivisionError), inproc.up() as procs:
        _ = 1 / 0
    assert procs.roster.is_stopped
    with pytest.raises(MeshStopped):
        procs.spawn("workers", Worker)


_TRAINER = """
LR, CONFIG = 1, {"lr": 1}

def loss():
    return "old"

class Trainer(Actor):
    seen, names = 0, {}

    @endpoint
    def step(self):
        return loss(), LR, CONFIG["lr"]

    @endpoint
    def attributes(self):
        return type(self).seen, dict(type(self).names)

    @endpoint
    def keep(self):
        type(self).seen += 1
        type(self).names["kept"] = 1
"""


@pytest.mark.real
def test_actors_that_are_made_again_are_what_their_class_is_now(local: Bench):
    cells: dict[str, Any] = {"__name__": "__main__", "Actor": Actor, "endpoint": endpoint}
    exec(_TRAINER, cells)
    procs = local.up({"rank": 1})
    first = procs.spawn("first", cells["Trainer"])
    assert first.step.call_one().get(10) == ("old", 1, 1)
    first.keep.call_one().get(10)
    exec("LR, CONFIG['lr'], Trainer.names['new'] = 2, 2, 2\ndef loss(): return 'new'", cells)
    second = procs.spawn("second", cells["Trainer"])
    assert second.step.call_one().get(10) == ("new", 2, 2)
    assert second.attributes.call_one().get(10) == (0, {"new": 2})
    assert first.step.call_one().get(10) == ("old", 1, 1)


def test_a_rank_keeps_nothing_of_actors_that_have_stopped(inproc: Bench):
    procs = inproc.up({"rank": 1})
    # The type first: of modules that torch loads late, any attribute loads them, or fails to.
    is_of_one = "type(each).__name__ == 'Instance' and each.name == 'for a while'"
    count = f"import gc\nsum({is_of_one} for each in gc.get_objects())"
    for _ in range(3):
        worker = procs.spawn("for a while", Worker)
        assert worker.do.call_one(count).get(10) == 1
        worker.stop().get(10)
