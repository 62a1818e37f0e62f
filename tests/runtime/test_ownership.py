"""What belongs to whom: arguments, classes, the actors that an actor has made."""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy
import pytest

from meshbook.runtime import (
    Actor,
    Channel,
    MeshFailure,
    Port,
    SupervisionError,
    context,
    endpoint,
    this_host,
    this_proc,
)
from meshbook.runtime.scope import CLIENT
from tests.runtime.families import Owner
from tests.runtime.troupe import Counter, Mortal

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage

own = logging.getLogger("of its own")


class Summer(Actor):
    logger = own

    def __init__(self, values: Any = ()) -> None:
        self.first = float(sum(values))

    @endpoint
    def sum(self, values: Any) -> float:
        return float(values.sum())

    @endpoint
    def get_first(self) -> float:
        return self.first

    @endpoint
    def name_of_logger(self) -> str:
        return self.logger.name


class Boss(Actor):
    @endpoint
    def sum_by(self, summer: Any, size: int) -> list[float]:
        """The memory is used again as soon as the call was made."""
        values = numpy.ones(size)
        answers: list[Any] = []
        for _ in range(2):
            answers.append(summer.sum.call_one(values))
            values *= 2
        return [answer.get(10) for answer in answers]

    @endpoint
    def make_with(self, size: int) -> float:
        procs = this_host().spawn_procs({"made": 1})
        values = numpy.ones(size)
        made: Any = procs.spawn("made", Summer, values)
        values *= 2
        return made.get_first.call_one().get(30)

    @endpoint
    def hire(self, procs: Any) -> Any:
        return procs.spawn("hired", Hired)

    @endpoint
    def make_and_stop(self, times: int) -> int:
        for _ in range(times):
            made = context().actor_instance.proc.spawn("brief", Hired)
            made.stop().get(10)
        return len(context().actor_instance.owned)

    @endpoint
    def leave(self) -> None:
        os._exit(3)


class Hired(Actor):
    @endpoint
    def work(self, port: Port[str]) -> None:
        self.port = port

    def __cleanup__(self, exc: Exception | None) -> None:
        if hasattr(self, "port"):
            self.port.send("cleaned up")


class Listener(Actor):
    """Owns actors, and says whose failures it hears of."""

    def __init__(self, told: Port[str]) -> None:
        self.told = told

    @endpoint
    def hire(self, procs: Any, name: str, cls: Any) -> Any:
        hired = procs.spawn(name, cls)
        hired.initialized.get(10)
        return hired

    def __supervise__(self, failure: MeshFailure) -> bool:
        self.told.send(failure.mesh_name)
        return True


class Late(Actor):
    def __init__(self) -> None:
        self.came: list[int] = []

    @endpoint
    def add(self, number: int) -> None:
        self.came.append(number)

    @endpoint
    def all(self) -> list[int]:
        return self.came


class Teller(Actor):
    @endpoint
    def tell(self, late: Any, count: int) -> list[int]:
        for number in range(count):
            late.add.broadcast(number)
        return late.all.call_one().get(10)


@pytest.mark.parametrize("size", [10, 100_000])
def test_arguments_are_as_they_were_when_the_call_was_made(stage: Stage, size: int) -> None:
    boss, summer = stage.one(Boss), stage.spawn(Summer, on=stage.shared(r=2).slice(r=1))
    assert boss.sum_by.call_one(summer, size).get(20) == [size, 2 * size]


def test_so_are_those_of_a_constructor(stage: Stage) -> None:
    assert stage.one(Boss).make_with.call_one(1000).get(60) == 1000


def test_a_class_may_have_a_logger_of_its_own(stage: Stage) -> None:
    assert stage.one(Summer).name_of_logger.call_one().get(10) == "of its own"


def test_who_has_made_actors_forgets_those_that_were_stopped(stage: Stage) -> None:
    assert stage.one(Boss).make_and_stop.call_one(5).get(20) == 1
    stage.one(Summer)
    before = len(CLIENT.actor_instance.owned)
    for _ in range(5):
        stage.shared(r=2).spawn("brief", Hired).stop().get(10)
    assert len(CLIENT.actor_instance.owned) <= before + 1


def test_calls_of_another_rank_come_in_order_while_the_actor_is_made(stage: Stage) -> None:
    teller = stage.one(Teller)
    for _ in range(20):
        late = stage.spawn(Late, on=stage.shared(r=2).slice(r=1))
        assert teller.tell.call_one(late, 30).get(20) == list(range(30))


class Forker(Actor):
    def __init__(self) -> None:
        self.count = 0

    @endpoint
    def fork(self, how: str) -> int:
        child = os.fork()
        if child == 0:
            if how == "raise":
                raise ValueError("in the child")
            if how == "exit":
                sys.exit(7)
            return -1
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    @endpoint
    def increment(self) -> tuple[int, int]:
        self.count += 1
        return os.getpid(), self.count


class AsyncForker(Actor):
    @endpoint
    async def fork(self, how: str) -> int:
        return Forker.fork.method(self, how)  # pyright: ignore

    @endpoint
    async def increment(self) -> tuple[int, int]:
        self.count = getattr(self, "count", 0) + 1
        return os.getpid(), self.count


@pytest.mark.real
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
@pytest.mark.parametrize("kind", [Forker, AsyncForker])
@pytest.mark.parametrize(("how", "code"), [("raise", 1), ("exit", 7), ("return", 0)])
def test_a_forked_child_is_no_second_rank(process_stage: Stage, kind: type[Actor], how: str, code: int) -> None:
    forker = process_stage.one(kind)
    assert forker.fork.call_one(how).get(20) == code
    came = [forker.increment.call_one().get(10) for _ in range(3)]
    assert [count for _, count in came] == [1, 2, 3] and len({pid for pid, _ in came}) == 1


def test_calls_keep_their_order_while_a_bootstrap_ends(stage: Stage) -> None:
    procs = stage.procs({"r": 1}, bootstrap=lambda: time.sleep(0.05))
    late: Any = procs.spawn("late", Late)
    number = 0
    while not procs.initialized.done():
        late.add.broadcast(number)
        number += 1
    late.add.broadcast(number)
    assert late.all.call_one().get(30) == list(range(number + 1))


def test_endpoints_that_were_replaced_count_for_what_is_spawned_then(stage: Stage) -> None:
    class Patched(Actor):
        @endpoint
        def step(self) -> str:
            return "old"

    assert stage.one(Patched).step.call_one().get(10) == "old"
    Patched.step = endpoint(lambda self: "new")  # pyright: ignore
    Patched.more = endpoint(lambda self: "more")  # pyright: ignore
    patched = stage.one(Patched)
    assert (patched.step.call_one().get(10), patched.more.call_one().get(10)) == ("new", "more")


def test_what_a_mesh_keeps_in_itself_is_no_name_for_an_endpoint(stage: Stage) -> None:
    mesh = stage.one(Hired)
    for name in vars(mesh):
        if name not in ("_target", "work"):
            taken = type("Taken", (Actor,), {name: endpoint(lambda self: None)})
            with pytest.raises(ValueError, match=f"an endpoint of Taken cannot be called '{name}'"):
                stage.shared(r=2).spawn("taken", taken)


def test_a_keyword_may_be_called_self(stage: Stage) -> None:
    class Anything(Actor):
        @endpoint
        def names(this, **kwargs: int) -> list[str]:
            return sorted(kwargs)

    assert stage.one(Anything).names.call_one(self=1, mesh=2).get(10) == ["mesh", "self"]


@pytest.mark.real
def test_actors_end_with_the_process_of_their_owner(process_stage: Stage) -> None:
    procs = process_stage.procs({"r": 2})
    boss: Any = procs.slice(r=0).spawn("boss", Boss)
    hired = boss.hire.call_one(procs.slice(r=1)).get(10)
    port, receiver = Channel[str].open()
    hired.work.call_one(port).get(10)
    boss.leave.broadcast()
    assert receiver.recv().get(10) == "cleaned up"
    with pytest.raises(SupervisionError, match="stopped as the process of its owner is gone"):
        hired.work.call_one(port).get(10)
    assert "exited with code 3" in process_stage.faults.get(timeout=10).report()


def test_of_a_death_hears_who_owned_what_lived_there(process_stage: Stage) -> None:
    procs = process_stage.procs({"r": 2})
    here = procs.slice(r=0)
    port, told = Channel[Any].open()
    spared, hit = here.spawn("spared", Owner, "none"), here.spawn("hit", Owner, "handle", port)
    spared.adopt.call_one(Counter, procs=here).get(20)
    hit.adopt.call_one(Counter, procs=procs).get(20)
    mortals = procs.spawn("mortal", Mortal)
    with pytest.raises(SupervisionError, match="code 4"):
        mortals.slice(r=1).exit.call_one(4).get(20)
    # To the client it is the death of the only mesh of its own that had an actor there.
    failure = process_stage.faults.get(timeout=10)
    assert (failure.mesh_name, failure.ranks) == ("mortal", [1])
    assert told.recv().get(10)[0] == "kid"
    # Told of it, this one would have failed, as its hook handles nothing.
    assert spared.reports.call_one().get(10) == []


def test_a_death_is_told_in_the_name_of_actors_that_lived(process_stage: Stage) -> None:
    procs = process_stage.procs({"r": 1})
    failed, mortal = procs.spawn("failed", Counter), procs.spawn("mortal", Mortal)
    failed.fail.broadcast("to nobody")
    assert process_stage.faults.get(timeout=10).mesh_name == "failed"
    mortal.exit.broadcast(3)
    assert process_stage.faults.get(timeout=10).mesh_name == "mortal"
    assert process_stage.faults.empty()


def test_so_it_is_to_an_actor_that_owned_them(process_stage: Stage) -> None:
    port, told = Channel[str].open()
    listener, procs = process_stage.one(Listener, port), process_stage.procs({"r": 1})
    failed = listener.hire.call_one(procs, "failed", Counter).get(20)
    mortal = listener.hire.call_one(procs, "mortal", Mortal).get(20)
    failed.fail.broadcast("to nobody")
    assert told.recv().get(10) == "failed"
    mortal.exit.broadcast(3)
    assert told.recv().get(10) == "mortal"


def test_who_has_failed_there_before_is_not_told_to_have_died(process_stage: Stage) -> None:
    """At most one callback for each rank of a mesh: who answers it by new actors would make them twice."""
    port, told = Channel[str].open()
    listener, procs = process_stage.one(Listener, port), process_stage.procs({"r": 1})
    hired = listener.hire.call_one(procs, "hired", Counter).get(20)
    mine, mortal = procs.spawn("mine", Counter), procs.spawn("mortal", Mortal)
    hired.fail.broadcast("to nobody")
    mine.fail.broadcast("to nobody")
    assert told.recv().get(10) == "hired"
    assert process_stage.faults.get(timeout=10).mesh_name == "mine"
    mortal.exit.broadcast(3)
    assert process_stage.faults.get(timeout=10).mesh_name == "mortal"
    listener.hire.call_one(this_proc(), "another", Counter).get(20).fail.broadcast("to nobody")
    assert (told.recv().get(10), process_stage.faults.empty()) == ("another", True)
