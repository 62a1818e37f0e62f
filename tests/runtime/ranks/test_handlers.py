"""Signal handlers of user code, which may raise what ends user code, and not the runtime."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator
from types import FrameType
from typing import NoReturn

import pytest

from meshbook.runtime.ranks import handlers
from meshbook.runtime.ranks.interrupts import Interrupts
from meshbook.runtime.wire import sigint

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals to a process")

SIGNAL = signal.SIGUSR2


@pytest.fixture
def interrupts() -> Generator[Interrupts]:
    interrupts = Interrupts()
    undo = handlers.install(interrupts)
    former = signal.signal(SIGNAL, loud)
    yield interrupts
    signal.signal(SIGNAL, former)
    undo()


def loud(signum: int, frame: FrameType | None) -> NoReturn:
    raise TimeoutError("wake up")


def strike() -> None:
    os.kill(os.getpid(), SIGNAL)


def test_it_raises_in_user_code(interrupts: Interrupts) -> None:
    with pytest.raises(TimeoutError, match="wake up"), interrupts.open_for(7):
        strike()


def test_between_calls_what_it_raises_is_told(interrupts: Interrupts, capfd: pytest.CaptureFixture[str]) -> None:
    strike()
    told = "TimeoutError: wake up\nraised by a handler of SIGUSR2\nno cell ran that it could stop\n"
    assert capfd.readouterr().err == told
    with interrupts.open_for(8):
        """Nothing is left for the next call."""


@pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="signals for real time")
def test_a_signal_without_a_name_is_told_too(interrupts: Interrupts, capfd: pytest.CaptureFixture[str]) -> None:
    nameless = signal.SIGRTMIN + 1
    former = signal.signal(nameless, loud)
    try:
        os.kill(os.getpid(), nameless)
    finally:
        signal.signal(nameless, former)
    assert f"TimeoutError: wake up\nraised by a handler of signal {nameless}\n" in capfd.readouterr().err


def test_the_runtime_finishes_first(interrupts: Interrupts, capfd: pytest.CaptureFixture[str]) -> None:
    story: list[str] = []
    with pytest.raises(TimeoutError), interrupts.open_for(7):
        with interrupts.shield():
            strike()
            story.append("the runtime's")
        story.append("not reached")
    assert story == ["the runtime's"]
    with interrupts.open_for(8, is_careful=True):
        with interrupts.opened():
            """What the user's code did, before the call ends."""
        strike()
    assert "no cell ran" in capfd.readouterr().err


def test_a_second_one_does_not_hide_the_first(interrupts: Interrupts, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TimeoutError), interrupts.open_for(7), interrupts.shield():
        strike()
        strike()
    assert capfd.readouterr().err.count("wake up") == 1


def test_one_that_does_not_raise_is_called_wherever_it_is(interrupts: Interrupts) -> None:
    came: list[int] = []
    signal.signal(SIGNAL, lambda signum, _: came.append(signum))
    strike()
    with interrupts.open_for(7):
        strike()
    assert came == [SIGNAL, SIGNAL]


def test_who_asks_gets_what_was_given(interrupts: Interrupts) -> None:
    assert signal.getsignal(SIGNAL) is loud
    assert signal.signal(SIGNAL, signal.SIG_IGN) is loud
    assert signal.getsignal(SIGNAL) is signal.SIG_IGN
    assert signal.signal(SIGNAL, loud) is signal.SIG_IGN


def test_a_forked_child_is_as_ever(interrupts: Interrupts) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            strike()
        except TimeoutError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_an_interrupt_comes_once_to_a_handler_of_the_users(interrupts: Interrupts) -> None:
    """It may take the second for the wish to leave at once."""
    heard: list[int] = []
    own = sigint.handler()
    interrupts.install()
    try:
        with interrupts.open_for(7):
            former = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
            assert not interrupts.has_struck
            asker = threading.Thread(target=interrupts.request, args=(7,))
            asker.start()
            asker.join()
            assert (heard, interrupts.has_struck) == ([signal.SIGINT], True)
            signal.signal(signal.SIGINT, former)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
    finally:
        sigint.let(own)  # not by `signal.signal`, which would put an ear at it
