"""Actors that are to end while they do what nothing cancels: who stops them, or waits in their queue, is told."""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime import Actor, Channel, concurrent_endpoint, endpoint, node
from meshbook.runtime.actor import GIVEN_PORT
from meshbook.runtime.errors import ActorError, SupervisionError
from meshbook.runtime.ranks.async_driver import AsyncDriver
from meshbook.runtime.ranks.intake import PlainJobs
from meshbook.runtime.ranks.resident import Resident
from meshbook.runtime.ranks.turns import Job
from meshbook.runtime.scope import Instance
from meshbook.runtime.wire import codec
from meshbook.runtime.wire.messages import Call
from tests.runtime.families import IMPATIENCE, AsyncHeld, AsyncQuitter, Held, Leaver, Quitter, hurry
from tests.runtime.troupe import Counter

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage


@pytest.mark.slow
def test_one_that_hangs_is_left_and_cleans_up_if_it_ever_goes_on(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "PATIENCE", IMPATIENCE)  # of ranks that are threads
    procs = stage.procs({"r": 1}, bootstrap=hurry)
    hung: list[tuple[Any, ...]] = []
    for number, (kind, in_constructor) in enumerate(itertools.product([Held, AsyncHeld], [True, False])):
        gate = tmp_path / f"gate{number}"
        os.mkfifo(gate)
        port, told = Channel[str].open()
        actor = stage.spawn(kind, port, str(gate), in_constructor, on=procs)
        held = None if in_constructor else actor.hold.call_one()
        hung.append((gate, told, held, [actor.ok.call_one() for _ in range(2)], actor))
        assert told.recv().get(10) == "waits"
    for stopping in [actor.stop() for *_, actor in hung]:
        stopping.get(10)
    for gate, told, held, late, _ in hung:
        for call in late:
            with pytest.raises(SupervisionError, match="stopped"):
                call.get(10)
        gate.open("w").close()
        assert told.recv().get(10) == "clean"
        assert held is None or held.get(10) is None


def test_one_whose_cleanup_exits_has_ended(stage: Stage) -> None:
    actor = stage.one(Leaver)
    assert actor.ok.call_one().get(10) == "ok"
    actor.stop().get(10)


class Arriving(PlainJobs):
    """Messages of which another one comes as soon as somebody has gone through all that were there."""

    def __init__(self, late: Callable[[], object]) -> None:
        super().__init__()
        self._late: list[Callable[[], object] | None] = [late, None]

    def get_nowait(self) -> Any:
        try:
            return super().get_nowait()
        except Empty:
            while self._late:
                self.put(self._late.pop(0))
            raise


def test_an_interrupt_leaves_what_it_lets_pass_in_order() -> None:
    story, is_working, may_go_on, has_ended = [], threading.Event(), threading.Event(), threading.Event()
    instance = Instance("counter", "Counter")
    jobs = Arriving(lambda: story.append("last"))
    nothing: Callable[..., Any] = lambda *_: None  # noqa: E731
    resident = Resident(instance, Counter, Counter, nothing, nothing, jobs, nothing, nothing, nothing)

    def work() -> None:
        is_working.set()
        assert may_go_on.wait(10)

    resident.put(work)
    resident.driver.start(nothing, instance.rank, 0)
    assert is_working.wait(10)
    for name in ("first", "second"):
        resident.put(functools.partial(story.append, name))
    resident.driver.end(has_ended.set)
    for _ in range(2):
        assert resident.strikes() == []
    may_go_on.set()
    assert has_ended.wait(10)
    assert story == ["first", "second"], "what came after the end is not done any more"


class Dozer(Actor):
    """Sleeps in its first call until it is to go on."""

    is_asleep, may_wake = threading.Event(), threading.Event()

    @endpoint
    async def doze(self) -> None:
        self.is_asleep.set()
        await asyncio.to_thread(self.may_wake.wait, 10)

    @endpoint
    async def nod(self, port: Any) -> None: ...


class GivenPort:
    def ranked(self, rank: int) -> GivenPort:
        return self


class Emptied(deque[Job]):
    """Messages that come back only when the loop has looked for them."""

    def __init__(self, is_looked_for: threading.Event) -> None:
        super().__init__()
        self._is_looked_for = is_looked_for

    def popleft(self) -> Job:
        try:
            return super().popleft()
        except IndexError:
            if threading.current_thread() is not threading.main_thread():
                self._is_looked_for.set()
            raise

    def extendleft(self, jobs: Iterable[Job]) -> None:
        Dozer.may_wake.set()
        assert self._is_looked_for.wait(10)
        super().extendleft(jobs)


def test_an_interrupt_leaves_no_message_behind_of_those_it_lets_pass() -> None:
    has_nodded, has_ended = threading.Event(), threading.Event()
    instance = Instance("dozer", "Dozer")
    nothing: Callable[..., Any] = lambda *_: 0  # noqa: E731
    resident = Resident(instance, Dozer, Dozer, nothing, nothing, PlainJobs(), nothing, nothing, nothing)
    driver = resident.driver
    assert isinstance(driver, AsyncDriver)
    driver._waiting = Emptied(threading.Event())
    for name, args, answer in ("doze", (), nothing), (f"nod{GIVEN_PORT}", (GivenPort(),), lambda *_: has_nodded.set()):
        resident.put(Job(Call(1, 1, name), [bytearray(codec.encode((args, {})).head)], instance.rank, answer))
    resident.driver.start(nothing, instance.rank, 0)
    assert Dozer.is_asleep.wait(10)
    resident.strikes()
    assert has_nodded.wait(10)
    resident.driver.end(has_ended.set)
    assert has_ended.wait(10)


class Stubborn(Actor):
    """Does not let itself be cancelled."""

    is_held, was_cancelled, may_end = threading.Event(), threading.Event(), threading.Event()

    @endpoint
    async def hold(self) -> None:
        self.is_held.set()
        while not self.may_end.is_set():
            try:
                await asyncio.to_thread(self.may_end.wait, 10)
            except asyncio.CancelledError:
                self.was_cancelled.set()

    @concurrent_endpoint
    async def hold_aside(self) -> None:
        await type(self).hold.method(self)  # pyright: ignore


@pytest.mark.parametrize("name", ["hold", "hold_aside"])
def test_a_call_that_goes_on_when_it_was_cancelled_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshbook.runtime.ranks.async_driver.PATIENCE", 0.0)
    for event in (Stubborn.is_held, Stubborn.was_cancelled, Stubborn.may_end):
        event.clear()
    answers, has_ended = SimpleQueue[Any](), threading.Event()
    instance = Instance("stubborn", "Stubborn")
    nothing: Callable[..., Any] = lambda *_: 0  # noqa: E731
    resident = Resident(instance, Stubborn, Stubborn, nothing, nothing, PlainJobs(), nothing, nothing, nothing)
    call, arguments = Call(1, 1, name), codec.encode(((), {})).head
    resident.put(Job(call, [bytearray(arguments)], instance.rank, lambda *answer: answers.put(answer)))
    resident.driver.start(nothing, instance.rank, 0)
    assert Stubborn.is_held.wait(10)
    resident.driver.end(has_ended.set)
    resident.driver.cancel()
    assert Stubborn.was_cancelled.wait(10)
    resident.driver.leave()
    reply, payload = answers.get(timeout=10)
    assert not reply.ok
    assert "stopped" in codec.decode(payload.head).message
    Stubborn.may_end.set()
    assert has_ended.wait(10)


@pytest.mark.parametrize("kind", [Quitter, AsyncQuitter])
def test_an_answer_that_exits_as_it_is_pickled_is_an_error(stage: Stage, kind: type[Any]) -> None:
    actor = stage.one(kind)
    with pytest.raises(ActorError, match="SystemExit: 3"):
        actor.answer.call_one().get(10)
    assert actor.ok.call_one().get(10) == "ok"


def test_a_callback_that_exits_fails_its_actor(stage: Stage) -> None:
    actor = stage.one(AsyncQuitter)
    actor.quit.call_one().get(10)
    assert "SystemExit: 3" in stage.faults.get(timeout=10).report()
    with pytest.raises(SupervisionError, match="SystemExit: 3"):
        actor.ok.call_one().get(10)
