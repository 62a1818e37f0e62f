"""What a process tells of an actor that could not be made in it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime import Accumulator, Actor, Channel, SupervisionError, current_rank, endpoint, send
from meshbook.runtime.wire.messages import StopActor

if TYPE_CHECKING:
    from tests.runtime.conftest import Bench, Stage


class Lost:
    """Cannot be unpickled where the actor would live."""

    def __reduce__(self) -> Any:
        return _rebuild, ()


def _rebuild() -> None:
    raise KeyError("no such treasure")


class Holder(Actor):
    def __init__(self, thing: object = None) -> None:
        if thing == "break" and current_rank().rank == 1:
            raise ValueError("it broke")

    @endpoint
    def hold(self) -> str:
        return "held"


class Starver(Actor):
    """Lets no thread be started for actors of this name, as where the system has none left."""

    @endpoint
    def starve(self, name: str) -> None:
        self.plain = plain = threading.Thread.start

        def start(self: threading.Thread) -> None:
            if self.name == f"meshbook-actor-{name}":
                raise RuntimeError("can't start new thread")
            plain(self)

        threading.Thread.start = start

    @endpoint
    def feed(self) -> None:
        threading.Thread.start = self.plain


class Asker(Actor):
    @endpoint
    def ask(self, holder: Any) -> str:
        try:
            return holder.hold.call_one().get(10)
        except SupervisionError as error:
            return str(error)


def test_actors_that_stopped_for_one_reason_share_it(inproc: Bench) -> None:
    here = inproc.root
    for actor in (1 << 60, 1 << 60 | 1):
        here.receive(StopActor(0, actor, "for the night"), [], lambda reply, payload: None)
    first, second = list(here._departed.values())[-2:]
    assert first is second and "for the night" in first.message


def _accumulated(holders: Any) -> Any:
    return Accumulator(holders.hold, "", str.__add__).accumulate()


def _sent(holders: Any) -> Any:
    port, answers = Channel[Any].open()
    send(holders.hold, (), {}, port)
    return answers.recv()


WAYS: dict[str, Callable[[Any], Any]] = {
    "call": lambda holders: holders.hold.call(),
    "call_one": lambda holders: holders.slice(r=1).hold.call_one(),
    "choose": lambda holders: holders.slice(r=1).hold.choose(),
    "stream": lambda holders: next(iter(holders.slice(r=1).hold.stream())),
    "accumulate": _accumulated,
    "send": lambda holders: _sent(holders.slice(r=1)),
    "initialized": lambda holders: holders.initialized,
}

CASES = [(Lost(), "no such treasure", 2), ("break", "it broke", 1)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("thing", "reason", "num_failed"), CASES)
def test_whoever_calls_it_is_told_why(stage: Stage, thing: object, reason: str, num_failed: int, way: str) -> None:
    holders = stage.spawn(Holder, thing)
    with pytest.raises(SupervisionError, match=reason) as told:
        WAYS[way](holders).get(10)
    assert "Holder" in str(told.value) or "<holder{" in str(told.value)
    for _ in range(num_failed):
        assert reason in stage.faults.get(timeout=10).report()


@pytest.mark.parametrize(("thing", "reason", "num_failed"), CASES)
def test_other_actors_are_told_too(stage: Stage, thing: object, reason: str, num_failed: int) -> None:
    asker = stage.one(Asker)
    holders = stage.spawn(Holder, thing)
    assert reason in asker.ask.call_one(holders.slice(r=1)).get(10)
    assert (asker.ask.call_one(holders.slice(r=0)).get(10) == "held") is (thing == "break")
    for _ in range(num_failed):
        stage.faults.get(timeout=10)


@pytest.mark.real
def test_one_for_which_no_thread_is_left_does_not_end_its_rank(process_stage: Stage) -> None:
    starvers = process_stage.spawn(Starver)
    starvers.starve.call("thin").get(10)
    for way in ("call", "initialized"):
        with pytest.raises(SupervisionError, match="can't start new thread"):
            WAYS[way](process_stage.spawn(Holder, name="thin")).get(10)
        for _ in range(2):
            assert "can't start new thread" in process_stage.faults.get(timeout=10).report()
    starvers.feed.call().get(10)
    assert process_stage.spawn(Holder, name="thin").hold.call().get(10).values() == ["held"] * 2
