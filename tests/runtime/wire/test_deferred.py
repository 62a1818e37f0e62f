"""Signals that come inside of a block are delivered after it, whatever their handlers do."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Generator
from types import FrameType

import pytest

from meshbook.runtime.wire.deferred import Deferred, Waiting, made_whole, untorn, wholly

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="these signals are not there")

heard: list[int] = []


def hear(signum: int, frame: FrameType | None) -> None:
    heard.append(signum)


def refuse(signum: int, frame: FrameType | None) -> None:
    raise RuntimeError(f"signal {signum}")


@pytest.fixture(autouse=True)
def handlers() -> Generator[None]:
    heard.clear()
    formers = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGALRM, signal.SIGUSR1)}
    yield
    for signum, former in formers.items():
        signal.signal(signum, former)


def test_they_come_after_it_in_their_order() -> None:
    signal.signal(signal.SIGALRM, hear)
    signal.signal(signal.SIGUSR1, hear)
    woken: list[int] = []
    with Deferred(lambda: woken.append(len(heard))) as deferred:
        for signum in (signal.SIGUSR1, signal.SIGALRM, signal.SIGUSR1):
            signal.raise_signal(signum)
        assert heard == [] and woken == [0, 0, 0]
    assert deferred.came
    deferred.deliver()
    assert heard == [signal.SIGUSR1, signal.SIGALRM, signal.SIGUSR1]
    assert signal.getsignal(signal.SIGALRM) is hear and signal.getsignal(signal.SIGUSR1) is hear


def test_one_that_raises_does_so_when_it_is_delivered() -> None:
    signal.signal(signal.SIGALRM, refuse)
    with Deferred(lambda: None) as deferred:
        signal.raise_signal(signal.SIGALRM)
    with pytest.raises(RuntimeError, match="signal 14"):
        deferred.deliver()
    assert signal.getsignal(signal.SIGALRM) is refuse


def test_what_nobody_handles_is_left_alone() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    with Deferred(lambda: None) as deferred:
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN
        signal.raise_signal(signal.SIGALRM)
    assert not deferred.came


def test_a_block_that_fails_leaves_the_handlers_as_they_were() -> None:
    signal.signal(signal.SIGALRM, refuse)
    with pytest.raises(KeyError), Deferred(lambda: None):
        raise KeyError
    assert signal.getsignal(signal.SIGALRM) is refuse
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_function_that_is_not_to_be_torn_returns_or_raises_before_they_are_heard() -> None:
    signal.signal(signal.SIGALRM, hear)
    signal.signal(signal.SIGUSR1, refuse)

    @untorn
    def work(signum: int, result: list[int]) -> list[int]:
        signal.raise_signal(signum)
        assert heard == []
        return [*result, 1 // len(result)]

    assert work(signal.SIGALRM, [7]) == [7, 1] and heard == [signal.SIGALRM]
    heard.clear()
    with pytest.raises(ZeroDivisionError):
        work(signal.SIGALRM, [])
    assert heard == [signal.SIGALRM]
    heard.clear()
    with pytest.raises(RuntimeError, match="signal"):
        work(signal.SIGUSR1, [7])


def test_within_a_block_there_can_be_one_in_which_they_are_heard_at_once() -> None:
    signal.signal(signal.SIGALRM, hear)
    with Deferred() as deferred:
        signal.raise_signal(signal.SIGALRM)
        assert heard == []
        with deferred.paused():
            assert heard == [signal.SIGALRM]
            signal.raise_signal(signal.SIGALRM)
            assert len(heard) == 2
        signal.raise_signal(signal.SIGALRM)
        assert len(heard) == 2
    deferred.deliver()
    assert len(heard) == 3
    assert signal.getsignal(signal.SIGALRM) is hear


def test_what_raises_in_there_leaves_the_block_to_its_end() -> None:
    signal.signal(signal.SIGALRM, refuse)
    signal.signal(signal.SIGUSR1, hear)
    ends: list[list[int]] = []
    with pytest.raises(RuntimeError, match="signal 14"), Deferred() as deferred:
        try:
            with deferred.paused():
                signal.raise_signal(signal.SIGALRM)
        finally:
            signal.raise_signal(signal.SIGUSR1)
            ends.append(list(heard))
    assert ends == [[]] and deferred.came
    assert signal.getsignal(signal.SIGALRM) is refuse


@pytest.mark.parametrize("handler", [hear, refuse])
def test_what_is_done_wholly_is_undone_if_a_handler_raises(handler: Callable[[int, FrameType | None], None]) -> None:
    signal.signal(signal.SIGALRM, handler)
    did: list[str] = []

    def do() -> None:
        signal.raise_signal(signal.SIGALRM)
        did.append("done")

    with pytest.raises(RuntimeError, match="signal 14") if handler is refuse else contextlib.nullcontext():
        wholly(do, lambda: did.append("undone"))
    assert did == (["done", "undone"] if handler is refuse else ["done"])


def test_what_fails_by_itself_is_not_undone() -> None:
    def fail() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        wholly(fail, lambda: pytest.fail("nothing was done"))


@pytest.mark.parametrize("handler", [hear, refuse])
def test_what_is_made_whole_is_undone_if_a_handler_raises(handler: Callable[[int, FrameType | None], None]) -> None:
    signal.signal(signal.SIGALRM, handler)
    undone: list[str] = []

    def make(waiting: Waiting) -> str:
        with waiting():
            pass
        signal.raise_signal(signal.SIGALRM)
        return "made"

    if handler is hear:
        assert made_whole(make, undone.append) == "made"
        assert undone == []
    else:
        with pytest.raises(RuntimeError, match="signal 14"):
            made_whole(make, undone.append)
        assert undone == ["made"]
    assert signal.getsignal(signal.SIGALRM) is handler


def test_while_it_waits_handlers_are_heard_and_nothing_was_made() -> None:
    signal.signal(signal.SIGALRM, refuse)
    made: list[str] = []

    def make(waiting: Waiting) -> None:
        with waiting():
            signal.raise_signal(signal.SIGALRM)
        made.append("made")

    with pytest.raises(RuntimeError, match="signal 14"):
        made_whole(make, lambda _: pytest.fail("nothing was made"))
    assert made == []
    assert signal.getsignal(signal.SIGALRM) is refuse
