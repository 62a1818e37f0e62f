"""Actors whose endpoints are `async def`: what user code does with tasks is its own affair, and ends no actor."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime import (
    Actor,
    ActorError,
    Channel,
    MeshFailure,
    Port,
    SupervisionError,
    concurrent_endpoint,
    context,
    endpoint,
    this_host,
    this_proc,
)

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage


class Tasks(Actor):
    def __init__(self, port: Port[str] | None = None) -> None:
        self.port = port
        self.kept: list[asyncio.Task[Any]] = []

    @endpoint
    async def cancel_later(self) -> str:
        self.kept.append(asyncio.current_task())  # pyright: ignore[reportArgumentType]
        return "in time"

    @endpoint
    async def fire(self) -> None:
        for task in self.kept:
            task.cancel()

    @endpoint
    async def cancel_itself_and_return(self) -> str:
        asyncio.current_task().cancel()  # pyright: ignore[reportOptionalMemberAccess]
        return "done"

    @endpoint
    async def cancel_itself(self) -> None:
        asyncio.current_task().cancel()  # pyright: ignore[reportOptionalMemberAccess]
        await asyncio.sleep(0)

    @endpoint
    async def cancel_all(self) -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)

    @endpoint
    async def leave_behind(self) -> None:
        self.kept.append(asyncio.create_task(self._hold()))
        await asyncio.sleep(0)

    async def _hold(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            assert self.port is not None
            self.port.send("released")

    @endpoint
    async def ping(self) -> str:
        return "pong"


def test_what_cancels_a_call_that_is_over_cancels_no_other(stage: Stage) -> None:
    tasks = stage.one(Tasks)
    assert tasks.cancel_later.call_one().get(10) == "in time"
    tasks.fire.call_one().get(10)
    assert [tasks.ping.call_one().get(10) for _ in range(2)] == ["pong", "pong"]


def test_a_call_may_cancel_itself_and_all_others(stage: Stage) -> None:
    tasks = stage.one(Tasks)
    assert tasks.cancel_itself_and_return.call_one().get(10) == "done"
    with pytest.raises(ActorError, match="CancelledError"):
        tasks.cancel_itself.call_one().get(10)
    tasks.cancel_all.call_one().get(10)
    assert tasks.ping.call_one().get(10) == "pong"


def test_tasks_that_it_leaves_behind_may_release_what_they_hold(stage: Stage) -> None:
    port, receiver = Channel[str].open()
    tasks = stage.one(Tasks, port)
    tasks.leave_behind.call_one().get(10)
    tasks.stop().get(10)
    assert receiver.recv().get(10) == "released"


class Selfish(Actor):
    """Calls itself, and takes the answer in a later call."""

    def __init__(self) -> None:
        self.answer: Any = None

    @endpoint
    async def begin(self, me: Any) -> None:
        self.answer = me.work.call_one()

    @endpoint
    async def work(self) -> str:
        return "worked"

    @endpoint
    async def collect(self) -> str:
        return await self.answer

    @endpoint
    async def wait_at_once(self, me: Any) -> str:
        return await me.work.call_one()


class SelfishSync(Actor):
    """The same."""

    def __init__(self) -> None:
        self.answer: Any = None

    @endpoint
    def begin(self, me: Any) -> None:
        self.answer = me.work.call_one()

    @endpoint
    def work(self) -> str:
        return "worked"

    @endpoint
    def collect(self) -> str:
        return self.answer.get()

    @endpoint
    def wait_at_once(self, me: Any) -> str:
        return me.work.call_one().get()


@pytest.mark.parametrize("kind", [Selfish, SelfishSync])
def test_an_actor_may_take_an_answer_of_its_own_later_and_not_wait_for_it_at_once(
    stage: Stage, kind: type[Actor]
) -> None:
    me = stage.one(kind)
    for _ in range(20):
        me.begin.call_one(me).get(10)
        assert me.collect.call_one().get(10) == "worked"
    with pytest.raises(ActorError, match="this actor waits for itself, which would never end"):
        me.wait_at_once.call_one(me).get(10)


class Frail(Actor):
    @endpoint
    async def fail(self) -> None:
        raise ValueError("frail")

    @concurrent_endpoint
    async def fail_aside(self, error: BaseException) -> None:
        raise error

    @concurrent_endpoint(explicit_response_port=True)
    async def fail_with_port(self, port: Port[str]) -> None:
        raise ValueError("no answer")

    @endpoint
    async def ping(self) -> str:
        return "pong"


class Slow(Actor):
    """Takes its time to hear of a failure."""

    def __init__(self) -> None:
        self.frail: Any = this_host().spawn_procs({"r": 2}).spawn("frail", Frail)
        self.said: list[str] = []
        self.may_end = asyncio.Event()

    @endpoint
    async def fail(self, rank: int) -> list[str]:
        """What was said when the failure is known here."""
        one = self.frail.slice(r=rank)
        one.fail.broadcast()
        with pytest.raises(SupervisionError):
            await one.ping.call_one()
        return self.said

    @endpoint
    async def end(self) -> None:
        self.may_end.set()

    @endpoint
    async def read(self) -> list[str]:
        return self.said

    async def __supervise__(self, failure: MeshFailure) -> bool:
        self.said.append("begins")
        await self.may_end.wait()
        await asyncio.sleep(0)
        self.said.append("ends")
        return True


def test_it_hears_of_failures_one_after_the_other_and_serves_meanwhile(stage: Stage, until: Any) -> None:
    slow = stage.one(Slow)
    for rank in range(2):
        slow.fail.call_one(rank).get(10)
    assert until(slow.read.call_one().get) == ["begins"]
    slow.end.call_one().get(10)
    until(lambda: len(slow.read.call_one().get(10)) == 4)
    assert slow.read.call_one().get(10) == ["begins", "ends"] * 2


class Bereft(Actor):
    """Waits for what an actor of its own, which has failed, will never send."""

    def __init__(self, port: Port[str]) -> None:
        self.port = port

    @endpoint
    async def wait(self) -> None:
        frail: Any = this_proc().spawn("frail", Frail)
        frail.fail.broadcast()
        try:
            await asyncio.Event().wait()
        finally:
            self.port.send("cancelled")

    @endpoint
    async def ping(self) -> str:
        return "pong"

    async def __cleanup__(self, exc: Exception | None) -> None:
        self.port.send("cleaned up")


class Blocking(Actor):
    """Does not let its loop go on before a call more has come."""

    @concurrent_endpoint
    async def fail(self, begun: Port[None]) -> None:
        ready = self.count()
        begun.send(None)
        context().actor_instance.abort("enough")
        while self.count() < ready + 2:  # that, and the next call
            time.sleep(0)

    @concurrent_endpoint
    async def cancel(self, begun: Port[None]) -> None:
        loop, ready = asyncio.get_running_loop(), self.count()
        begun.send(None)
        while self.count() < ready + 1:
            time.sleep(0)
        loop.call_soon(loop.call_soon, self.cancel_all)  # when the call has become a task

    def cancel_all(self) -> None:
        for task in asyncio.all_tasks():
            task.cancel()

    def count(self) -> int:
        return len(asyncio.get_running_loop()._ready)  # pyright: ignore

    @endpoint
    async def ping(self) -> str:
        return "pong"

    @concurrent_endpoint
    async def ping_aside(self) -> str:
        return "pong"


@pytest.mark.parametrize("name", ["ping", "ping_aside"])
def test_a_call_that_has_not_begun_when_the_actor_fails_is_refused(stage: Stage, name: str) -> None:
    port, begun = Channel[None].open()
    blocking = stage.one(Blocking)
    blocking.fail.broadcast(port)
    begun.recv().get(10)
    with pytest.raises(SupervisionError, match="enough"):
        getattr(blocking, name).call_one().get(10)
    assert "enough" in stage.faults.get(timeout=10).report()


@pytest.mark.parametrize("name", ["ping", "ping_aside"])
def test_a_call_that_is_cancelled_before_it_has_begun_fails_alone(stage: Stage, name: str) -> None:
    port, begun = Channel[None].open()
    blocking = stage.one(Blocking)
    blocking.cancel.broadcast(port)
    begun.recv().get(10)
    with pytest.raises(ActorError, match="cancelled before it began"):
        getattr(blocking, name).call_one().get(10)
    assert getattr(blocking, name).call_one().get(10) == "pong"


class Heartless(Bereft):
    async def __supervise__(self, failure: MeshFailure) -> bool:
        raise OSError("no heart")


@pytest.mark.parametrize(("cls", "why"), [(Bereft, "did not handle"), (Heartless, "no heart")])
def test_one_that_fails_with_an_actor_of_its_own_waits_for_nothing_more(
    stage: Stage, cls: type[Bereft], why: str
) -> None:
    port, told = Channel[str].open()
    bereft = stage.one(cls, port)
    waiting, queued = bereft.wait.call_one(), bereft.ping.call_one()
    for call in (waiting, queued):
        with pytest.raises(SupervisionError, match=why):
            call.get(10)
    assert [told.recv().get(10) for _ in range(2)] == ["cancelled", "cleaned up"]
    assert why in stage.faults.get(timeout=10).report()


def test_a_concurrent_endpoint_that_fails_fails_alone(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    frail = stage.one(Frail)
    for error in (ValueError("aside"), asyncio.CancelledError("aside")):
        frail.fail_aside.broadcast(error)
        assert [frail.ping.call_one().get(10) for _ in range(2)] == ["pong", "pong"]  # the former has run by the second
    assert stage.engine != "inproc" or caplog.text.count("Nobody waits for frail.fail_aside, which has failed") == 2
    for error in (KeyError("aside"), KeyboardInterrupt("aside")):
        with pytest.raises(ActorError, match="aside"):
            frail.fail_aside.call_one(error).get(10)
    assert frail.ping.call_one().get(10) == "pong"
    frail.fail_with_port.broadcast()
    assert "no answer" in stage.faults.get(timeout=10).report()
