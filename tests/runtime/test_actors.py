"""What an actor is: its endpoints, its place, its thread, its order; and what cannot be one."""

from __future__ import annotations

import logging
import os
import pickle
import random
import sys
import threading
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime import (
    Actor,
    ActorError,
    Channel,
    Endpoint,
    SupervisionError,
    as_endpoint,
    concurrent_endpoint,
    context,
    current_actor_name,
    current_rank,
    current_size,
    endpoint,
    this_proc,
)
from meshbook.runtime.controller.roster import Roster
from meshbook.runtime.mesh import roster_of
from tests.runtime.actors import Early
from tests.runtime.troupe import Author, Chatterer, Child, Counter, Courier, Diary, Gate, Poet, Scribe

if TYPE_CHECKING:
    from tests.runtime.conftest import Bench, Stage

ROOT = Path(__file__).parents[2]


class Router(Actor):
    @endpoint
    def endpoints(self) -> list[str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return ["a", "b"]


class TestEndpoints:
    def test_they_change_the_state_of_their_own_rank(self, stage: Stage) -> None:
        counters = stage.spawn(Counter, 10)
        assert counters.add.call(5).get(10).values() == [15, 15]
        assert counters.slice(r=1).add.call_one(n=1).get(10) == 16
        assert counters.add.call(0).get(10).values() == [15, 16]

    def test_inherited_and_overridden(self, stage: Stage) -> None:
        child = stage.one(Child, value=1)
        assert (child.add.call_one().get(10), child.own.call_one().get(10)) == (11, "own")
        assert child.rank.call_one().get(10) == 0
        with pytest.raises(RuntimeError, match=r"Child.forget is not annotated as an endpoint.*@endpoint.*as_endpoint"):
            child.forget()

    def test_async_ones_run_one_after_the_other(self, stage: Stage) -> None:
        poet = stage.one(Poet)
        lines = [poet.write.call_one(name) for name in "abc"]
        expected = [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]
        assert lines[-1].get(10) == expected

    def test_one_that_waits_for_what_is_cancelled_fails_and_the_next_runs(self, stage: Stage) -> None:
        poet = stage.one(Poet)
        with pytest.raises(ActorError, match=r"poet.cancel failed.*CancelledError"):
            poet.cancel.call_one().get(10)
        with pytest.raises(ActorError, match="CancelledError: enough"):
            poet.cancel_concurrently.call_one().get(10)
        assert poet.release.call_one().get(10) == []
        poet.cancel.broadcast()
        assert "CancelledError" in stage.faults.get(timeout=10).report()
        with pytest.raises(SupervisionError, match="CancelledError"):
            poet.release.call_one().get(10)

    def test_concurrent_ones_overlap_and_start_in_order(self, stage: Stage) -> None:
        poet = stage.one(Poet)
        waiting = [poet.wait.call_one(str(i)) for i in range(5)]
        failing = poet.boom.call_one()
        with pytest.raises(ValueError, match="boom, concurrently"):
            failing.get(10)
        assert not any(future.done() for future in waiting)
        assert poet.release.call_one().get(10) == [str(i) for i in range(5)]
        assert [future.get(10) for future in waiting] == [str(i) for i in range(5)]

    def test_a_plain_method_is_called_as_an_endpoint(self, stage: Stage) -> None:
        counters = stage.spawn(Counter, 3)
        assert as_endpoint(counters.plain).call(4).get(10).values() == [7, 7]
        assert as_endpoint(counters.plain_port, explicit_response_port=True).call(5).get(10).values() == [5, 5]
        assert as_endpoint(counters.add).call(1).get(10).values() == [4, 4]
        with pytest.raises(TypeError, match="missing a required argument: 'x'"):
            as_endpoint(counters.plain).call()
        with pytest.raises(ValueError, match="as_endpoint takes a method of a spawned actor"):
            as_endpoint(print)

    def test_methods_without_self_are_methods_too(self, stage: Stage) -> None:
        counters = stage.spawn(Counter)
        assert as_endpoint(counters.twice).call(4).get(10).values() == [8, 8]
        assert as_endpoint(counters.labelled).call("x").get(10).values() == ["counter x"] * 2
        with pytest.raises(TypeError, match="missing a required argument: 'x'"):
            as_endpoint(counters.twice).call()
        for method in (counters.twice, counters.labelled):
            with pytest.raises(RuntimeError, match="is not annotated as an endpoint"):
                method(1)

    def test_any_other_name_may_be_an_endpoint_s(self, stage: Stage) -> None:
        routers = stage.spawn(Router, on=stage.shared(r=2))
        assert routers.endpoints.call().get(10).values() == [["a", "b"]] * 2
        assert "endpoints" in dir(routers)

    def test_a_mesh_lists_its_endpoints(self, stage: Stage) -> None:
        assert {"add", "fail", "slice", "sizes"} <= set(dir(stage.spawn(Counter)))

    def test_what_is_no_endpoint_says_so(self, stage: Stage) -> None:
        counters = stage.spawn(Counter)
        assert isinstance(counters.add, Endpoint)
        with pytest.raises(TypeError, match=r"counter.add is an endpoint: say how to call it, .call\(...\)"):
            counters.add(1)
        with pytest.raises(RuntimeError, match=r"Counter.plain is not annotated as an endpoint"):
            counters.plain(1)
        for name in ("value", "kind", "nothing"):
            with pytest.raises(AttributeError, match=f"no endpoint '{name}'; its endpoints: add, echo"):
                getattr(counters, name)
        with pytest.raises(TypeError, match=r"counter.add: propagate=None does not say what it gives"):
            counters.add.rref(1)
        with pytest.raises(TypeError):
            Counter().add(1)  # pyright: ignore
        assert counters.add.call(1).get(10).values() == [1, 1]


class Mixed(Actor):
    @endpoint
    def one(self) -> None: ...

    @endpoint
    async def two(self) -> None: ...


class MixedByBirth(Counter):
    @endpoint
    async def two(self) -> None: ...


class Named(Actor):
    @endpoint
    def sizes(self) -> None: ...


class SyncHooked(Poet):
    def __cleanup__(self, exc: Exception | None) -> None: ...


class AsyncHooked(Counter):
    async def __cleanup__(self, exc: Exception | None) -> None: ...


class AsyncSupervisor(Counter):
    async def __supervise__(self, failure: Any) -> bool:
        return True


class Titled(Actor):
    """Its constructor takes an argument by a name that `spawn` must leave to it."""

    def __init__(self, cls: int) -> None:
        self.cls = cls

    @endpoint
    def told(self) -> int:
        return self.cls


SLOW = """
import os
open(os.path.join(os.path.dirname(__file__), "gate")).read()
is_there = True
"""


def test_actors_wait_until_their_rank_is_prepared(local: Bench, tmp_path: Path) -> None:
    """Such as with its process groups, which the main thread makes meanwhile."""
    (tmp_path / "slow_to_come.py").write_text(SLOW)
    os.mkfifo(tmp_path / "gate")
    procs = local.begin({"r": 1}, preload=["slow_to_come"], path=[str(tmp_path), *sys.path, str(ROOT)])
    early = procs.spawn("early", Early, "slow_to_come")
    answer = early.seen.call_one()
    with pytest.raises(TimeoutError):
        answer.get(0.2)
    (tmp_path / "gate").write_text("")
    assert answer.get(20) == [True, True]
    assert early.seen.call_one().get(10) == [True, True]


class TestSpawn:
    @pytest.mark.parametrize(
        ("cls", "args", "kind", "text"),
        [
            (int, (), ValueError, "is not an Actor, and must subclass it: write `class Name"),
            (Counter(1), (), TypeError, "is not a class: give the class itself"),
            (Mixed, (), ValueError, "mixes both async and sync endpoints"),
            (MixedByBirth, (), ValueError, "mixes both async and sync endpoints"),
            (Named, (), ValueError, "collides with an endpoint name: an endpoint of Named cannot be called 'sizes'"),
            (
                SyncHooked,
                (),
                ValueError,
                "has async endpoints, but a synchronous __cleanup__: SyncHooked.__cleanup__ must be async def",
            ),
            (
                AsyncHooked,
                (),
                ValueError,
                "has sync endpoints, but an async __cleanup__: AsyncHooked.__cleanup__ must be def",
            ),
            (
                AsyncSupervisor,
                (),
                ValueError,
                "has sync endpoints, but an async __supervise__: AsyncSupervisor.__supervise__ must be def",
            ),
            (Counter, (1, 2), TypeError, "too many positional arguments"),
            (Counter, (threading.Lock(),), TypeError, "cannot pickle: .*lock"),
        ],
    )
    def test_a_mistake_is_told_at_once(
        self, stage: Stage, cls: Any, args: tuple[Any, ...], kind: type[Exception], text: str
    ) -> None:
        with pytest.raises(kind, match=text) as caught:
            stage.shared(r=2).spawn("wrong", cls, *args)
        assert "\n" not in str(caught.value)
        assert stage.spawn(Counter).add.call(1).get(10).values() == [1, 1]

    def test_by_the_names_of_the_arguments(self, stage: Stage) -> None:
        procs = stage.shared(r=2)
        named = stage.owned(procs.spawn(name="by name", Class=Counter, value=2))
        assert named.add.call(1).get(10).values() == [3, 3]
        assert stage.owned(procs.spawn("titled", Titled, cls=4)).told.call().get(10).values() == [4, 4]

    def test_decorators_refuse_what_they_cannot_mark(self) -> None:
        with pytest.raises(ValueError, match="concurrent_endpoint can only wrap async endpoints: write `async def f`"):

            @concurrent_endpoint  # pyright: ignore[reportArgumentType]
            def f(self: Any) -> None: ...

        with pytest.raises(ValueError, match="concurrent_endpoint does not wrap @endpoint"):
            concurrent_endpoint(Counter.add)
        with pytest.raises(ValueError, match="write one decorator"):
            endpoint(Counter.add)

    def test_any_name_may_be_used_again(self, stage: Stage) -> None:
        one, two = (stage.spawn(Counter, start, name="my actor!") for start in (1, 2))
        assert (one.add.call(0).get(10).values(), two.add.call(0).get(10).values()) == ([1, 1], [2, 2])

    def test_a_class_ships_as_it_was(self, stage: Stage) -> None:
        made: list[Any] = []
        for word in ("first", "second"):
            scope: dict[str, Any] = {"__name__": "__main__"}
            source = "class Cell(Actor):\n    @endpoint\n    def say(self): return WORD"
            exec(source, scope | {"Actor": Actor, "endpoint": endpoint, "WORD": word}, cell := {})
            made.append(stage.spawn(cell["Cell"]))
        assert [mesh.say.call().get(10).values() for mesh in made] == [["first"] * 2, ["second"] * 2]

    def test_meshes_show_what_they_are(self, stage: Stage) -> None:
        counters = stage.spawn(Counter)
        assert (counters.__name__, len(counters), counters.sizes) == ("Counter", 2, {"r": 2})
        assert repr(counters) == "<ActorMesh counter of Counter on {r=2}>"
        assert "add(n" in counters._repr_html_()
        assert counters.initialized.get(10) is None
        assert pickle.loads(pickle.dumps(counters)) == counters != counters.slice(r=0)

    def test_every_class_has_a_logger(self) -> None:
        assert Counter.logger.name == "Counter"
        assert Counter.logger.level == logging.DEBUG


class TestContext:
    def test_of_the_client(self) -> None:
        assert (repr(context().actor_instance), dict(current_rank()), current_size()) == ("<root>", {}, {})
        assert current_rank().rank == 0
        assert current_actor_name() == context().actor_instance.actor_id

    def test_on_the_whole_mesh(self, stage: Stage) -> None:
        diaries = stage.spawn(Diary, on=stage.shared(a=2, b=2), name="diary")
        for entries in (diaries.birth.call().get(10), diaries.now.call().get(10)):
            for point, entry in entries:
                assert entry["rank"] == entry["own"] == entry["message_rank"] == dict(point)
                assert (entry["index"], entry["size"], entry["procs"]) == (
                    point.rank,
                    {"a": 2, "b": 2},
                    {"a": 2, "b": 2},
                )
                assert (entry["name"], entry["class"]) == ("diary", "tests.runtime.troupe.Diary")
                assert entry["repr"] == f"<root>.<tests.runtime.troupe.Diary diary{point!r}>"
                assert (entry["proc"], entry["creator"]) == ({}, "root")
        assert len({entry["id"] for _, entry in diaries.now.call().get(10)}) == 4

    def test_a_view_has_ranks_of_its_own(self, stage: Stage) -> None:
        diaries = stage.spawn(Diary, on=stage.shared(a=2, b=2))
        column = diaries.slice(b=1).now.call().get(10).values()
        assert [(entry["rank"], entry["index"], entry["size"]) for entry in column] == [
            ({"a": 0}, 0, {"a": 2}),
            ({"a": 1}, 1, {"a": 2}),
        ]
        assert [entry["own"] for entry in column] == [{"a": 0, "b": 1}, {"a": 1, "b": 1}]
        single = diaries.slice(a=1, b=0).now.call_one().get(10)
        assert (single["rank"], single["index"], single["size"]) == ({}, 0, {})
        assert single["own"] == {"a": 1, "b": 0}
        flat = diaries.flatten("r").slice(r=slice(1, 4, 2)).now.call().get(10).values()
        assert [(entry["rank"], entry["own"]) for entry in flat] == [
            ({"r": 0}, {"a": 0, "b": 1}),
            ({"r": 1}, {"a": 1, "b": 1}),
        ]

    def test_actors_on_a_slice_of_processes(self, stage: Stage) -> None:
        diaries = stage.spawn(Diary, on=stage.shared(a=2, b=2).slice(a=1))
        assert [entry["own"] for _, entry in diaries.birth.call().get(10)] == [{"b": 0}, {"b": 1}]

    def test_this_proc_is_the_process_of_the_actor(self, stage: Stage) -> None:
        for pid, sizes, own in stage.spawn(Diary).spawn_here.call().get(10).values():
            assert (pid, sizes) == (own, {})

    def test_this_proc_of_the_client_is_the_client(self, stage: Stage) -> None:
        counter = stage.owned(this_proc().spawn("mine", Counter, 5))
        assert counter.add.call_one(1).get(10) == 6
        items: list[int] = [1]
        echoed = counter.echo.call_one(items).get(10)
        assert echoed == items
        assert echoed is not items


class TestThreads:
    def test_a_sync_actor_has_a_thread_for_life(self, stage: Stage) -> None:
        port, receiver = Channel[Any].open()
        diary = stage.one(Diary, port)
        marks = {diary.mark.call_one().get(10) for _ in range(5)}
        assert {mark for mark, _ in marks} == {"made"}
        assert len(marks) == 1
        diary.stop().get(10)
        assert receiver.recv().get(10) == ({}, marks.pop()[1])

    def test_actors_of_one_process_run_in_parallel(self, stage: Stage) -> None:
        one, two = stage.one(Gate), stage.one(Gate)
        port, receiver = Channel[Any].open()
        held = [one.hold.call_one(port), two.hold.call_one(port)]
        releases = [receiver.recv().get(10) for _ in held]
        for release in releases:
            release.send("go")
        assert [future.get(10) for future in held] == ["go", "go"]
        assert one.thread.call_one().get(10) != two.thread.call_one().get(10)

    def test_the_client_may_call_from_many_threads(self, stage: Stage) -> None:
        counter = stage.one(Counter)
        answers: list[int] = []

        def work() -> None:
            answers.extend(counter.add.call_one(1).get(10) for _ in range(20))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answers) == list(range(1, 161))


class TestOrder:
    WAYS = ("call_one", "broadcast", "call", "choose", "stream")

    def test_messages_of_one_sender_come_in_its_order(self, stage: Stage) -> None:
        scribe, chance = stage.one(Scribe), random.Random(3)
        ways = [chance.choice(self.WAYS) for _ in range(300)]
        for n, way in enumerate(ways):
            getattr(scribe.note, way)("client", n)
        assert scribe.read.call_one().get(20) == [("client", n) for n in range(300)]

    def test_through_slices_too(self, stage: Stage) -> None:
        scribes = stage.spawn(Scribe)
        for n in range(50):
            (scribes if n % 2 else scribes.slice(r=1)).note.broadcast("client", n)
        whole, one = scribes.read.call().get(10).values()
        assert [n for _, n in whole] == list(range(1, 50, 2))
        assert [n for _, n in one] == list(range(50))

    def test_of_many_senders_each_keeps_its_own(self, stage: Stage, until: Any) -> None:
        scribe = stage.owned(stage.shared(r=2).slice(r=1).spawn("scribe", Scribe))
        authors = [stage.spawn(Author) for _ in range(2)]
        chance = random.Random(4)
        ways = [chance.choice(self.WAYS) for _ in range(100)]
        sent = [author.write.call(scribe, f"author {i}", ways) for i, author in enumerate(authors)]
        for future in sent:
            future.get(20)
        by_author: dict[str, list[int]] = defaultdict(list)
        # Broadcasts of the authors may still be on their way: the order between different senders is open.
        until(lambda: len(scribe.read.call_one().get(20)) == 400)
        for who, n in scribe.read.call_one().get(20):
            by_author[who].append(n)
        for numbers in by_author.values():
            # Two ranks write under one name: each number comes twice, and the first of each in order.
            firsts = list(dict.fromkeys(numbers))
            assert firsts == list(range(100))
            assert sorted(numbers) == sorted([*range(100), *range(100)])


class TestActorsCallActors:
    def test_on_another_mesh(self, stage: Stage) -> None:
        counters = stage.spawn(Counter, 10, on=stage.shared(a=2, b=2))
        courier = stage.one(Courier, counters.slice(a=0))  # before they are surely there
        assert courier.total.call_one().get(20) == 22
        assert courier.total.call_one(counters, n=1).get(10) == 46
        assert courier.total.call_one(mesh=counters.slice(b=1), n=0).get(10) == 23

    def test_nested_in_containers(self, stage: Stage) -> None:
        counters = stage.spawn(Counter, 3)
        courier = stage.one(Courier)
        assert courier.each.call_one({"all": [counters.slice(r=1), counters.slice(r=0)]}).get(10) == [3, 3]
        back = courier.pass_on.call_one(counters).get(10)
        assert back["mesh"].add.call(1).get(10).values() == [4, 4]
        assert back["slice"][0].add.call_one(1).get(10) == 5
        assert dict(back["point"]) == {}
        with pytest.raises(NotImplementedError, match="requires an owned ActorMesh"):
            back["mesh"].stop()

    def test_process_meshes_travel_too(self, stage: Stage) -> None:
        courier = stage.one(Courier)
        assert courier.use_procs.call_one(stage.shared(a=2, b=2)).get(10) == [8] * 4
        assert courier.use_procs.call_one(stage.shared(r=2).slice(r=1)).get(10) == [8]

    def test_errors_travel_from_rank_to_rank(self, stage: Stage) -> None:
        answer = stage.one(Courier).throw.call_one(stage.spawn(Counter, name="other")).get(10)
        assert answer.startswith("Actor call other.fail failed on rank")
        assert "raise ValueError(text)" in answer

    def test_rank_to_rank_without_the_controller(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        procs = stage.shared(r=2)
        courier = stage.owned(procs.slice(r=0).spawn("courier", Courier))
        counter = stage.owned(procs.slice(r=1).spawn("counter", Counter))
        counter.initialized.get(10)  # its answer to the spawn may come later than those of its calls
        courier.many.call_one(counter, 1).get(10)  # the link between the two is made now
        seen: list[str] = []
        on_message = Roster.on_message

        def spy(roster: Roster, rank: int, message: Any, frames: Any) -> None:
            seen.append(type(message).__name__)
            on_message(roster, rank, message, frames)

        monkeypatch.setattr(Roster, "on_message", spy)
        assert courier.many.call_one(counter, 50).get(10) == list(range(2, 52))
        assert seen == ["Reply"]

    def test_an_async_actor_awaits_others(self, stage: Stage) -> None:
        counters = stage.spawn(Counter)
        assert stage.one(Poet).ask.call_one(counters).get(10) == [1, 1]

    @pytest.mark.parametrize("how", ["call", "call_one", "choose"])
    def test_an_actor_that_waits_for_itself_is_told(self, stage: Stage, how: str) -> None:
        courier = stage.one(Courier)
        with pytest.raises(RuntimeError, match="waits for itself") as caught:
            courier.myself.call_one(courier, how).get(10)
        assert "\n" not in str(caught.value.exception)  # pyright: ignore

    def test_an_async_actor_that_waits_for_itself_is_told(self, stage: Stage) -> None:
        poet = stage.one(Poet)
        with pytest.raises(RuntimeError, match="waits for itself"):
            poet.ask_myself.call_one(poet).get(10)
        assert poet.ask_my_other_self.call_one(poet).get(10) == []


@pytest.mark.parametrize("how", ["print", "thread", "write", "nothing"])
def test_what_an_endpoint_says_is_there_with_its_answer_and_looked_for_only_then(
    stage: Stage, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stage.engine == "inproc" and how in ("thread", "write"):
        pytest.skip("of ranks that are threads only what these print themselves is heard")
    procs = stage.procs({"r": 1})
    procs.initialized.get(30)
    chatterer = stage.spawn(Chatterer, on=procs)
    chatterer.say.call_one("nothing", "").get(10)
    talked: list[bool] = []
    on_message = Roster.on_message

    def spy(roster: Roster, rank: int, message: Any, frames: Any) -> None:
        talked.append(message.talked)
        on_message(roster, rank, message, frames)

    monkeypatch.setattr(Roster, "on_message", spy)
    for number in range(20):
        word = f"{how} {number}"
        chatterer.say.call_one(how, word).get(10)
        said = roster_of(chatterer).logs[0].tail("stdout", 1)
        assert (said == f"{word}\n") == (how != "nothing")
    if how in ("print", "nothing"):
        assert talked == [how == "print"] * 20
