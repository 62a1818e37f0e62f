"""An interrupt that Python swallows comes again."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime import Actor, Channel, Port, endpoint
from meshbook.runtime.controller.gather import Gather
from meshbook.runtime.errors import ActorError
from meshbook.runtime.mesh import roster_of
from meshbook.runtime.ranks import swallowed
from meshbook.runtime.ranks.interrupts import Interrupts
from meshbook.runtime.wire.messages import Strike

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals to a thread")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[BaseException | None]:
    """What is told as ever."""
    told: list[BaseException | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda error: told.append(error.exc_value))
    return told


@pytest.fixture
def interrupts(told: list[BaseException | None]) -> Generator[Interrupts]:
    former = signal.getsignal(signal.SIGINT)
    interrupts = Interrupts()
    interrupts.install()
    swallowed.install(interrupts)
    yield interrupts
    signal.signal(signal.SIGINT, former)


class Finalized:
    """Runs something where what it raises is swallowed."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.work = work

    def __del__(self) -> None:
        self.work()


def test_it_comes_again_where_python_hears_it(interrupts: Interrupts, told: list[BaseException | None]) -> None:
    asked: list[threading.Thread] = []

    def ask() -> None:
        asked.append(threading.Thread(target=interrupts.request, args=(7,)))
        asked[0].start()
        while True:  # it is raised here
            pass

    with pytest.raises(KeyboardInterrupt), interrupts.open_for(7):
        Finalized(ask)
        threading.Event().wait(10)
        pytest.fail("it was lost")
    asked[0].join()
    assert told == []


def test_it_comes_again_where_it_was_held_back(interrupts: Interrupts, told: list[BaseException | None]) -> None:
    def work() -> None:
        with interrupts.shield():
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), interrupts.open_for(7):
        Finalized(work)
        threading.Event().wait(10)
        pytest.fail("it was lost")
    assert told == []


def test_it_does_not_hit_the_next_call(interrupts: Interrupts, monkeypatch: pytest.MonkeyPatch) -> None:
    late: list[Callable[[], None]] = []
    with monkeypatch.context() as patch, interrupts.open_for(7):
        patch.setattr("_thread.start_new_thread", lambda work, arguments: late.append(lambda: work(*arguments)))
        Finalized(lambda: os.kill(os.getpid(), signal.SIGINT))
    with interrupts.open_for(8):
        thread = threading.Thread(target=late.pop())
        thread.start()
        thread.join()


def test_what_user_code_raises_itself_is_told(interrupts: Interrupts, told: list[BaseException | None]) -> None:
    def give_up() -> None:
        raise KeyboardInterrupt("mine")

    def fail() -> None:
        raise ValueError("wrong")

    with interrupts.open_for(7):
        Finalized(give_up)
        Finalized(fail)
    assert [str(error) for error in told] == ["mine", "wrong"]


class Untidy(Actor):
    """Is at work in a finalizer, and then elsewhere."""

    def __init__(self, begun: Port[str]) -> None:
        self.begun = begun

    @endpoint
    def tidy(self) -> None:
        def work() -> None:
            self.begun.send("in the finalizer")
            while True:
                pass

        Finalized(work)
        self.begun.send("after it")
        while True:
            pass

    @endpoint
    def ping(self) -> str:
        return "well"


def test_that_of_an_actor_comes_again_too(process_stage: Stage) -> None:
    port, begun = Channel[str].open()
    untidy: Any = process_stage.one(Untidy, port)
    answer = untidy.tidy.call_one()
    assert begun.recv().get(10) == "in the finalizer"
    gather = Gather(roster_of(untidy), [0], "interrupt")
    roster_of(untidy).inquire([0], gather, Strike)
    assert begun.recv().get(10) == "after it"
    with pytest.raises(ActorError, match="KeyboardInterrupt: interrupted"):
        answer.get(10)
    assert untidy.ping.call_one().get(10) == "well"
