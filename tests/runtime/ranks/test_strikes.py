"""Interrupting actors: the endpoint ends where it is, its caller is told, the actor lives on."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime import Channel
from meshbook.runtime.controller.gather import Gather
from meshbook.runtime.errors import ActorError, SupervisionError
from meshbook.runtime.future import Promise
from meshbook.runtime.mesh import roster_of
from meshbook.runtime.ranks import offspring, strikes
from meshbook.runtime.wire.messages import Strike
from tests.runtime.busy import AsyncBusy, AsyncEnds, Busy, Ends
from tests.runtime.ranks.ticks import tick

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage


class Scene:
    """One actor of each kind on a rank, and what they say when they begin."""

    def __init__(self, stage: Stage) -> None:
        self.port, self._begun = Channel[str].open()
        self.busy, self.other = stage.one(Busy, self.port), stage.one(AsyncBusy, self.port)

    def begin(self, call: Callable[[], Any], *names: str) -> Any:
        """Call, and wait until all these endpoints are at work."""
        answer = call()
        assert sorted(self._begun.recv().get(10) for _ in names) == sorted(names)
        return answer

    def await_begin(self, name: str) -> None:
        assert self._begun.recv().get(10) == name

    def interrupt(self) -> list[str]:
        """The endpoints that were at work."""
        gather = Gather(roster_of(self.busy), [0], "interrupt")
        roster_of(self.busy).inquire([0], gather, Strike)
        assert gather.wait(10)
        return gather.answers[0]

    def is_well(self) -> bool:
        return all(actor.note.call_one("well").get(10)[-1] == "well" for actor in (self.busy, self.other))


@pytest.fixture
def scene(stage: Stage) -> Scene:
    return Scene(stage)


@pytest.mark.parametrize("endpoint", ["spin", "doze"])
def test_python_code_is_interrupted(scene: Scene, endpoint: str) -> None:
    answer = scene.begin(getattr(scene.busy, endpoint).call_one, endpoint)
    assert scene.interrupt() == [f"busy.{endpoint}"]
    with pytest.raises(ActorError, match=r"KeyboardInterrupt: interrupted") as caught:
        answer.get(10)
    assert f"in {endpoint}" in str(caught.value)
    assert scene.is_well()


@pytest.mark.parametrize(
    ("name", "endpoint"), [("busy", "chatter"), ("other", "chatter"), ("other", "report"), ("other", "advance")]
)
def test_one_that_reports_all_the_time_is_interrupted(process_stage: Stage, name: str, endpoint: str) -> None:
    scene = Scene(process_stage)
    answer = scene.begin(getattr(getattr(scene, name), endpoint).call_one, endpoint)
    assert len(scene.interrupt()) == 1
    with pytest.raises(ActorError, match="KeyboardInterrupt: interrupted"):
        answer.get(10)
    assert scene.is_well()


def test_an_endpoint_that_catches_it_is_struck_once(scene: Scene) -> None:
    for _ in range(5):
        answer = scene.begin(scene.busy.save.call_one, "save")
        scene.interrupt()
        assert answer.get(10) == "saved"


def test_a_wait_for_another_actor_is_interrupted(scene: Scene) -> None:
    answer = scene.begin(lambda: scene.busy.ask.call_one(scene.other), "ask", "sleep")
    assert scene.interrupt() == ["asyncbusy.sleep", "busy.ask"]
    with pytest.raises(ActorError, match="KeyboardInterrupt"):
        answer.get(10)
    assert scene.is_well()


def test_a_loop_that_blocks_on_another_actor_is_interrupted(scene: Scene) -> None:
    answer = scene.begin(lambda: scene.other.ask.call_one(scene.busy), "ask", "doze")
    assert scene.interrupt() == ["asyncbusy.ask", "busy.doze"]
    with pytest.raises(ActorError, match="KeyboardInterrupt"):
        answer.get(10)
    assert scene.is_well()


@pytest.mark.parametrize("name", ["busy", "other"])
def test_what_blocks_in_c_goes_on_until_it_returns(scene: Scene, tmp_path: Path, name: str) -> None:
    gate, actor = tmp_path / "gate", getattr(scene, name)
    os.mkfifo(gate)
    answer = scene.begin(lambda: actor.hold.call_one(str(gate)), "hold")
    assert scene.interrupt() == [{"busy": "busy.hold", "other": "asyncbusy.hold"}[name]]
    os.close(os.open(gate, os.O_RDWR))
    if name == "busy":
        with pytest.raises(ActorError, match="KeyboardInterrupt: interrupted"):  # as soon as it is back in Python
            answer.get(10)
    else:
        assert answer.get(10) == "through"  # nothing is raised on event loops, and it awaits nothing
    assert scene.is_well()


@pytest.fixture
def command(tmp_path: Path) -> tuple[list[str], Callable[[], object]]:
    """A command that ends when it is interrupted, and what waits until it has begun."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    return ["sh", "-c", f"echo > {gate}; exec sleep 1000"], gate.read_text


@pytest.mark.skipif(sys.platform != "linux", reason="no other system tells whose child is whose")
class TestCommands:
    """What an endpoint has started and waits for hears the interrupt too."""

    @pytest.mark.parametrize("endpoint", ["run", "system"])
    def test_one_that_is_waited_for(self, scene: Scene, command: Any, endpoint: str) -> None:
        words, await_begin = command
        answer = scene.begin(lambda: getattr(scene.busy, endpoint).call_one(words), endpoint)
        await_begin()
        assert scene.interrupt() == [f"busy.{endpoint}"]
        with pytest.raises(ActorError, match="KeyboardInterrupt"):
            answer.get(10)
        assert scene.is_well()

    def test_one_that_has_just_begun(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where an endpoint cannot be struck yet, it would see its command end, and go on."""
        steps: list[str] = []
        monkeypatch.setattr(offspring, "are_there_any", lambda: True)
        monkeypatch.setattr(offspring, "interrupt_those_of_threads", lambda *_: steps.append("command"))

        class Late(strikes.Strike):
            def attempt(self) -> bool:
                steps.append("attempt")
                self.has_come = len(steps) == 3
                return self.has_come

        target = strikes.Target(threading.get_ident(), 0.0, lambda: True, lambda frame: False)
        assert strikes.strike_all([Late("trainer.step", target)]) == ["trainer.step"]
        assert steps == ["attempt", "attempt", "attempt", "command"]

    def test_one_that_is_awaited(self, scene: Scene, command: Any) -> None:
        words, await_begin = command
        answer = scene.other.run.call_one(words)
        await_begin()
        scene.await_begin("run")
        scene.interrupt()
        assert answer.get(10) == -signal.SIGINT
        assert scene.is_well()

    def test_not_one_that_an_endpoint_before_has_started(self, scene: Scene, command: Any) -> None:
        words, await_begin = command
        scene.busy.start.call_one(words).get(10)
        await_begin()
        tick()
        answer = scene.begin(scene.busy.doze.call_one, "doze")
        scene.interrupt()
        with pytest.raises(ActorError, match="KeyboardInterrupt"):
            answer.get(10)
        assert scene.busy.end.call_one().get(10) is None

    def test_not_one_of_another_thread(self, scene: Scene, command: Any) -> None:
        words, await_begin = command
        answer = scene.begin(scene.busy.doze.call_one, "doze")
        with subprocess.Popen(words) as of_another:  # on ranks that are threads it is a child of the same process
            await_begin()
            scene.interrupt()
            with pytest.raises(ActorError, match="KeyboardInterrupt"):
                answer.get(10)
            assert of_another.poll() is None
            of_another.kill()


def test_an_interrupt_after_another_fails_no_actor(scene: Scene) -> None:
    for actor, endpoint in [(scene.busy, "spin"), (scene.other, "sleep")] * 10:
        answer = scene.begin(getattr(actor, endpoint).call_one, endpoint)
        gathers = [Gather(roster_of(scene.busy), [0], "interrupt") for _ in range(5)]
        for gather in gathers:
            roster_of(scene.busy).inquire([0], gather, Strike)
        with pytest.raises(ActorError, match="KeyboardInterrupt"):
            answer.get(10)
        assert all(gather.wait(10) for gather in gathers)
    assert scene.is_well()


def test_what_was_waited_for_may_be_waited_for_again(scene: Scene) -> None:
    answer = scene.begin(lambda: scene.busy.ask_twice.call_one(scene.other), "ask_twice", "sleep")
    scene.interrupt()
    scene.await_begin("again")
    assert "KeyboardInterrupt: interrupted" in answer.get(10)
    assert scene.is_well()


@pytest.mark.parametrize("endpoint", ["sleep", "spin", "beside"])
def test_what_is_awaited_is_interrupted(scene: Scene, endpoint: str) -> None:
    answer = scene.begin(getattr(scene.other, endpoint).call_one, endpoint)
    assert scene.interrupt() == [f"asyncbusy.{endpoint}"]
    with pytest.raises(ActorError, match="KeyboardInterrupt: interrupted"):
        answer.get(10)
    assert scene.is_well()


def test_an_awaited_endpoint_may_deal_with_it(scene: Scene) -> None:
    for _ in range(2):
        answer = scene.begin(scene.other.stubborn.call_one, "stubborn")
        scene.interrupt()
        assert answer.get(10) == "saved"
    assert scene.is_well()


@pytest.mark.parametrize("name", ["busy", "other"])
def test_what_waits_is_refused(scene: Scene, name: str) -> None:
    actor = getattr(scene, name)
    first = scene.begin(actor.spin.call_one, "spin")
    waiting = [actor.note.call_one("waiting") for _ in range(3)]
    actor.note.broadcast("unheard")
    scene.interrupt()
    for answer, how in [(first, "interrupted"), *((each, "interrupted before it began") for each in waiting)]:
        with pytest.raises(ActorError, match=f"KeyboardInterrupt: {how}"):
            answer.get(10)
    assert actor.note.call_one("then").get(10) == ["then"]


def test_a_broadcast_that_is_interrupted_is_not_the_end_of_its_actor(scene: Scene) -> None:
    scene.begin(scene.busy.spin.broadcast, "spin")
    assert scene.interrupt() == ["busy.spin"]
    assert scene.is_well()


def test_who_waits_at_a_port_is_told(scene: Scene) -> None:
    answer = scene.begin(scene.busy.spin_for.call_one, "spin_for")
    assert scene.interrupt() == ["busy.spin_for"]
    with pytest.raises(ActorError, match="KeyboardInterrupt: interrupted"):
        answer.get(10)
    assert scene.is_well()


@pytest.mark.parametrize("kind", [Ends, AsyncEnds])
def test_a_constructor_is_interrupted_which_is_the_end_of_its_actor(process_stage: Stage, kind: Any) -> None:
    scene = Scene(process_stage)
    ends: Any = process_stage.one(kind, scene.port, "__init__")
    scene.await_begin("__init__")
    assert scene.interrupt() == [f"{kind.__name__.lower()}.__init__"]
    for _ in range(2):
        with pytest.raises(SupervisionError, match="KeyboardInterrupt: interrupted"):
            ends.ping.call_one().get(10)
    assert "KeyboardInterrupt: interrupted" in process_stage.faults.get(timeout=10).report()
    assert scene.is_well()


@pytest.mark.parametrize("kind", [Ends, AsyncEnds])
def test_a_cleanup_is_interrupted_which_holds_the_stop(scene: Scene, stage: Stage, kind: Any) -> None:
    ends: Any = stage.one(kind, scene.port, "__cleanup__")
    stopped = ends.stop()
    scene.await_begin("__cleanup__")
    assert scene.interrupt() == [f"{kind.__name__.lower()}.__cleanup__"]
    stopped.get(10)
    assert scene.is_well()


def test_two_at_once_leave_the_interpreter_as_it_was() -> None:
    first_is_in, second_is_in, first_is_done = threading.Event(), threading.Event(), threading.Event()
    former = sys.getswitchinterval()

    def first() -> bool:
        first_is_in.set()
        second_is_in.wait(0.05)  # it is kept out
        return False

    def second() -> bool:
        second_is_in.set()
        first_is_done.wait(5)
        return False

    def attempt(is_at_work: Callable[[], bool]) -> None:
        strikes.Strike("trainer.step", strikes.Target(0, 0.0, is_at_work, lambda frame: False)).attempt()
        first_is_done.set()

    threads = [threading.Thread(target=attempt, args=(turn,)) for turn in (first, second)]
    try:
        for thread in threads:
            thread.start()
            assert first_is_in.wait(5)
        for thread in threads:
            thread.join()
        assert sys.getswitchinterval() == former
    finally:
        sys.setswitchinterval(former)


def test_no_garbage_is_collected_while_nothing_else_may_run() -> None:
    """What is freed may let go of the interpreter, and a thread that loops has it then for as long as it may."""
    intervals: list[float] = []

    def note(phase: str, info: object) -> None:
        intervals.append(sys.getswitchinterval())

    def litter() -> bool:
        garbage = [[object()] for _ in range(50)]
        return not garbage

    usual, threshold = sys.getswitchinterval(), gc.get_threshold()
    strike = strikes.Strike("trainer.step", strikes.Target(0, 0.0, litter, lambda frame: False))
    gc.callbacks.append(note)
    gc.set_threshold(1)
    try:
        strike.attempt()
        litter()
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(note)
    assert {*intervals} == {usual}
    assert gc.isenabled()


def test_idle_actors_are_left_alone(scene: Scene) -> None:
    assert scene.is_well()
    assert scene.interrupt() == []
    assert scene.is_well()


@pytest.mark.parametrize("seed", range(3))
def test_interrupts_at_any_moment(process_stage: Stage, seed: int) -> None:
    """However an interrupt meets what an endpoint does, or its end, the actor answers the next call."""
    chance = random.Random(seed)
    scene, others = Scene(process_stage), Scene(process_stage)
    calls: list[Callable[[], Any]] = []
    for actor, far in [(scene.busy, others.other), (scene.other, others.busy)]:
        calls += [
            lambda actor=actor: actor.note.call_one("x"),
            lambda actor=actor: actor.say.call_one(chance.randrange(2000)),
            lambda actor=actor, far=far: actor.note_there.call_one(far, chance.randrange(50)),
        ]
    for _ in range(60):
        answers = [chance.choice(calls)() for _ in range(chance.randint(1, 4))]
        answers[0].exception(chance.random() * 0.01)
        for _ in range(chance.randrange(3)):
            scene.interrupt()
        for answer in answers:
            error = answer.exception(10)
            assert error is None or "KeyboardInterrupt: interrupted" in str(error)
    assert scene.is_well() and others.is_well()


def test_the_wait_of_one_thread_is_ended_and_that_of_another_is_not() -> None:
    promise: Promise[str] = Promise()
    ended: dict[str, object] = {}

    def wait(name: str) -> None:
        try:
            ended[name] = promise.future.get(10)
        except KeyboardInterrupt as error:
            ended[name] = str(error)

    threads = {name: threading.Thread(target=wait, args=(name,)) for name in ("struck", "other")}
    for thread in threads.values():
        thread.start()
    promise.strike(threads["struck"].ident or 0)
    promise.heed_strikes()
    threads["struck"].join(10)
    assert ended == {"struck": "interrupted"}
    promise.resolve("there")
    threads["other"].join(10)
    assert ended["other"] == "there"


def test_a_strike_at_a_thread_that_has_left_the_wait_holds_up_no_other() -> None:
    promise: Promise[str] = Promise()
    promise.strike(-1)
    promise.heed_strikes()
    ended: list[str] = []
    waiting = threading.Thread(target=lambda: ended.append(promise.future.get()), daemon=True)
    waiting.start()
    promise.resolve("there")
    waiting.join(10)
    assert ended == ["there"]


@pytest.mark.parametrize("is_forbidden", [False, True])
def test_a_strike_that_comes_before_the_wait_ends_it_at_once(is_forbidden: bool) -> None:
    promise: Promise[str] = Promise()
    if is_forbidden:
        promise.forbid("it would never end", None, lambda: False)
    promise.strike(threading.get_ident())
    promise.heed_strikes()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt, match="interrupted"):
        promise.future.get(10)
    assert time.monotonic() - started < 2
