"""Which interrupt reaches user code, and which does not."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from meshbook.runtime.ranks import os_system
from meshbook.runtime.ranks.interrupts import Interrupts

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals to a thread")


@pytest.fixture
def interrupts() -> Generator[Interrupts]:
    former = signal.getsignal(signal.SIGINT)
    interrupts = Interrupts()
    interrupts.install()
    yield interrupts
    signal.signal(signal.SIGINT, former)


def ask(interrupts: Interrupts, call: int) -> int:
    """What `request` answers on another thread, as on a rank."""
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(interrupts.request(call)))
    thread.start()
    thread.join()
    return answers[0]


def test_user_code_of_the_call_is_interrupted(interrupts: Interrupts):
    for wanted in (7, 0):
        with pytest.raises(KeyboardInterrupt), interrupts.open_for(7):
            ask(interrupts, wanted)
        assert interrupts.running == 0


def test_it_is_known_that_a_call_goes_on_after_it(interrupts: Interrupts):
    with interrupts.open_for(7):
        assert not interrupts.has_struck
        with pytest.raises(KeyboardInterrupt):
            ask(interrupts, 7)
        assert interrupts.has_struck
    assert not interrupts.has_struck
    with interrupts.open_for(8):
        assert not interrupts.has_struck, "it was the call before"


def test_another_call_is_not(interrupts: Interrupts):
    with interrupts.open_for(7):
        assert ask(interrupts, 6) == 7


def test_between_calls_nothing_is(interrupts: Interrupts):
    assert ask(interrupts, 0) == 0
    os.kill(os.getpid(), signal.SIGINT)
    with interrupts.open_for(8):
        """What came before it does not count."""


def test_what_goes_on_between_calls_makes_way_for_the_next(interrupts: Interrupts):
    with pytest.raises(KeyboardInterrupt), interrupts.between():
        ask(interrupts, 8)
    with pytest.raises(KeyboardInterrupt), interrupts.open_for(8):
        """It is interrupted too."""


def test_what_goes_on_between_calls_is_left_alone_by_other_interrupts(interrupts: Interrupts):
    with interrupts.open_for(8):
        """It has ended."""
    with interrupts.between():
        assert ask(interrupts, 0) == 0
        assert ask(interrupts, 8) == 0
        os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_that_comes_too_late_is_dropped(interrupts: Interrupts, monkeypatch: pytest.MonkeyPatch):
    held: list[Callable[[], None]] = []
    monkeypatch.setattr(
        signal, "pthread_kill", lambda thread, signum: held.append(lambda: os.kill(os.getpid(), signum))
    )
    with interrupts.open_for(7):
        assert ask(interrupts, 7) == 7
    with interrupts.open_for(8):
        held[0]()
    assert interrupts.running == 0


def test_a_signal_from_elsewhere_counts(interrupts: Interrupts):
    with pytest.raises(KeyboardInterrupt), interrupts.open_for(7):
        os.kill(os.getpid(), signal.SIGINT)


def test_a_handler_of_the_users_stays_for_its_call(interrupts: Interrupts):
    """That of `pdb.run`, say, would open a debugger in a later cell that is to be stopped."""
    heard: list[int] = []
    with interrupts.open_for(7):
        signal.signal(signal.SIGINT, lambda signum, _: heard.append(signum))
        ask(interrupts, 7)
    assert heard
    del heard[:]
    with pytest.raises(KeyboardInterrupt), interrupts.open_for(8):
        ask(interrupts, 8)
    assert not heard


def test_the_runtime_finishes_first(interrupts: Interrupts):
    story: list[str] = []
    with pytest.raises(KeyboardInterrupt), interrupts.open_for(7):
        with interrupts.shield():
            with interrupts.shield():
                ask(interrupts, 7)
                story.append("inner")
            story.append("outer")
        story.append("not reached")
    assert story == ["inner", "outer"]


def test_an_interrupt_held_back_is_for_one_call(interrupts: Interrupts):
    with pytest.raises(ValueError, match="first"), interrupts.open_for(7), interrupts.shield():
        ask(interrupts, 7)
        raise ValueError("first")
    with interrupts.open_for(8), interrupts.shield():
        """The interrupt was for call 7."""


def test_who_is_careful_is_interrupted_where_user_code_runs(interrupts: Interrupts):
    story: list[str] = []
    with interrupts.open_for(7, is_careful=True):
        ask(interrupts, 7)
        story.append("before")
        with pytest.raises(KeyboardInterrupt), interrupts.opened():
            story.append("not reached")
        with pytest.raises(KeyboardInterrupt), interrupts.opened():
            story.append("inside")
            ask(interrupts, 7)
        ask(interrupts, 7)
        story.append("after")
    assert story == ["before", "inside", "after"]
    with interrupts.open_for(8, is_careful=True), interrupts.opened():
        """What came too late for one does not hit the next."""


@pytest.mark.parametrize("is_careful", [False, True])
def test_a_call_that_has_not_begun_is_interrupted_when_it_does(interrupts: Interrupts, is_careful: bool):
    with interrupts.open_for(5):
        assert ask(interrupts, 7) == 7
    with interrupts.open_for(6, is_careful=is_careful), interrupts.opened():
        """Another one, which was on its way before."""
    with pytest.raises(KeyboardInterrupt), interrupts.open_for(7, is_careful=is_careful), interrupts.opened():
        pytest.fail("it runs on")
    with interrupts.open_for(8, is_careful=is_careful), interrupts.opened():
        assert ask(interrupts, 7) == 8


@pytest.fixture
def command(interrupts: Interrupts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[str]:
    """A command for `os.system`, which is interrupted when it has begun."""
    monkeypatch.setattr(os, "system", os.system)
    os_system.install(interrupts)
    told = tmp_path / "told"
    os.mkfifo(told)
    asker = threading.Thread(target=lambda: told.read_text() and interrupts.request(7))
    asker.start()
    yield f"echo begun > {told}; exec sleep 1000"
    asker.join()


def test_what_the_call_waits_for_while_it_hears_no_signals_is_interrupted(interrupts: Interrupts, command: str) -> None:
    """`os.system` drops them, and the press with them."""
    ended: list[int] = []
    with pytest.raises(KeyboardInterrupt), interrupts.open_for(7):
        ended.append(os.system(command))
    assert ended == []


def test_a_handler_of_the_users_hears_behind_it_what_was_dropped(interrupts: Interrupts, command: str) -> None:
    heard: list[int] = []
    with interrupts.open_for(7):
        former = signal.signal(signal.SIGINT, lambda number, _: (interrupts.heard(), heard.append(number)))
        assert os.WTERMSIG(os.system(command)) == signal.SIGINT
        assert heard == [signal.SIGINT]
        signal.signal(signal.SIGINT, former)


def test_a_command_that_nobody_stops_gives_its_status(interrupts: Interrupts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "system", os.system)
    os_system.install(interrupts)
    with interrupts.open_for(7):
        assert os.waitstatus_to_exitcode(os.system("exit 3")) == 3


def test_a_fork_is_a_program_like_others(interrupts: Interrupts) -> None:
    with interrupts.open_for(7):
        interrupts._wanted = 6  # pyright: ignore[reportPrivateUsage] - a strike that call never heard
        if not (pid := os.fork()):
            heard = 1
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                heard = 0
            finally:
                os._exit(heard)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
