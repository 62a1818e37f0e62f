"""What `context()` gives, and what an actor can do to itself through it."""

from __future__ import annotations

import contextvars
import logging
import pickle
import threading
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime import (
    Actor,
    Channel,
    Context,
    Port,
    SupervisionError,
    config,
    context,
    current_rank,
    endpoint,
    this_proc,
)
from meshbook.runtime.scope import CLIENT, CreatorInstance, Instance, enter
from tests.runtime.families import Owner
from tests.runtime.troupe import Diary

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage


class Suicidal(Actor):
    def __init__(self, port: Port[Any]) -> None:
        self.port = port

    @endpoint
    def end(self, how: str, *reason: str) -> str:
        getattr(context().actor_instance, how)(*reason)
        return "the last answer"

    @endpoint
    def ok(self) -> str:
        return "ok"

    @endpoint
    def creator(self) -> CreatorInstance | None:
        return context().actor_instance.creator

    @endpoint
    def complain(self) -> None:
        logging.getLogger("elsewhere").warning("complaint %d", 1)

    def __cleanup__(self, exc: Exception | None) -> None:
        self.port.send(exc and str(exc))


def test_a_client_that_has_asked_for_nothing_is_a_process_of_its_own(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CLIENT.actor_instance, "find_procs", None)
    instance = context().actor_instance
    assert (instance.proc.sizes, instance.proc_mesh.sizes) == ({}, {})
    assert instance.proc == this_proc()


@pytest.mark.parametrize(("how", "reason"), [("abort", "no more"), ("kill", "no more")])
def test_an_actor_that_aborts_has_failed(stage: Stage, how: str, reason: str) -> None:
    port, told = Channel[Any].open()
    actor = stage.one(Suicidal, port)
    assert actor.end.call_one(how, reason).get(10) == "the last answer"
    assert reason in told.recv().get(10)
    assert reason in stage.faults.get(timeout=10).report()
    with pytest.raises(SupervisionError, match=f"actor explicitly aborted due to: {reason}"):
        actor.ok.call_one().get(10)


def test_an_actor_that_stops_has_not(stage: Stage) -> None:
    port, told = Channel[Any].open()
    actor = stage.one(Suicidal, port)
    assert actor.end.call_one("stop").get(10) == "the last answer"
    assert told.recv().get(10) is None
    with pytest.raises(SupervisionError, match="has status: stopped: stopped by itself"):
        actor.ok.call_one().get(10)


def test_an_actor_that_is_stopped_says_why(stage: Stage) -> None:
    port, told = Channel[Any].open()
    actor = stage.spawn(Suicidal, port)
    actor.stop("all is done").get(10)
    assert [told.recv().get(10) for _ in range(2)] == [None, None]
    with pytest.raises(SupervisionError, match="has status: stopped: all is done"):
        actor.ok.call().get(10)


def test_reasons_may_be_missing(stage: Stage) -> None:
    port, _ = Channel[Any].open()
    actor = stage.one(Suicidal, port)
    actor.end.call_one("abort").get(10)
    assert "aborted due to: (no reason provided)" in stage.faults.get(timeout=10).report()


def test_who_made_it_is_known_and_travels(stage: Stage) -> None:
    port, _ = Channel[Any].open()
    creator = stage.one(Suicidal, port).creator.call_one().get(10)
    assert creator == CreatorInstance("root", None)
    assert (repr(creator), creator.rank) == ("<root>", CLIENT.message_rank)
    assert pickle.loads(pickle.dumps(creator)) == creator


def test_where_its_maker_lives_is_known_and_actors_can_be_spawned_there(stage: Stage) -> None:
    port, _ = Channel[Any].open()
    procs = stage.shared(r=2)
    owner = stage.spawn(Owner, on=procs).slice(r=1)
    creator = owner.adopt.call_one(Suicidal, port).get(10).creator.call_one().get(10)
    assert (creator.proc_mesh, creator.proc) == (procs, procs.slice(r=1))
    assert stage.spawn(Diary, on=creator.proc).now.call_one().get(10)["proc"] == {}
    assert creator.creator.proc == this_proc()


def test_an_actor_is_called_by_all_who_made_it(stage: Stage) -> None:
    kid = stage.spawn(Owner).slice(r=1).adopt.call_one(Diary).get(10)
    made_by = "<root>.<tests.runtime.families.Owner owner{'r': 1/2}>"
    assert kid.now.call_one().get(10)["repr"] == f"{made_by}.<tests.runtime.troupe.Diary kid>"


def test_the_client_is_the_same_on_all_its_threads() -> None:
    seen: list[Context] = []
    thread = threading.Thread(target=lambda: seen.append(context()))
    thread.start()
    thread.join()
    assert seen == [CLIENT]
    assert (seen[0].actor_instance.name, seen[0].actor_instance.class_name) == ("root", None)
    assert seen[0].message_rank == current_rank()


def test_it_is_a_context_variable() -> None:
    instance = Instance("a", "m.A", address=(1, 2, 3))
    inner = contextvars.copy_context()
    inner.run(enter, Context(instance, CLIENT.message_rank))
    assert inner.run(context).actor_instance is instance
    assert context() is CLIENT
    assert (instance.proc_id, instance.actor_id) == ("mesh-1.rank-2", "mesh-1.rank-2.a")


def test_log_records_say_in_which_actor(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if stage.engine != "inproc":
        pytest.skip("the records of a process go to its own stderr")
    port, _ = Channel[Any].open()
    actor = stage.one(Suicidal, port)
    actor.complain.call_one().get(10)
    logging.getLogger("elsewhere").warning("of the client")
    monkeypatch.setattr(config, "prefix_python_logs_with_actor", False)
    actor.complain.call_one().get(10)
    assert [record.getMessage() for record in caplog.records] == [
        "[actor=<root>.<tests.runtime.test_scope.Suicidal suicidal>] complaint 1",
        "of the client",
        "complaint 1",
    ]
