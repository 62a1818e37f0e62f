"""A thread beside the main one is stopped at its next line, by another; what has none is left alone."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from types import FrameType

import pytest

from meshbook.kernel.debug.strikes import Strikes

Start = Callable[[Callable[[], object]], threading.Thread]


class Looping:
    """Code that loops until it is told to end."""

    def __init__(self) -> None:
        self.goes_on = True

    def calls(self) -> None:
        count = 0
        while self.goes_on:
            count = self.step(count)

    def step(self, count: int) -> int:
        return count + 1

    def spins(self) -> None:
        while self.goes_on: pass  # fmt: skip  # noqa: E701 - a jump to the line itself begins no line


@pytest.fixture
def looping() -> Looping:
    return Looping()


@pytest.fixture
def start(looping: Looping) -> Generator[Start]:
    threads: list[threading.Thread] = []

    def start(work: Callable[[], object]) -> threading.Thread:
        begun = threading.Event()

        def run() -> None:
            begun.set()
            work()

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        assert begun.wait(10)
        return threads[-1]

    yield start
    looping.goes_on = False
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("name", ["calls", "spins"])
def test_a_loop_is_stopped_again_and_again(looping: Looping, start: Start, name: str) -> None:
    hits: list[tuple[int, str]] = []
    hit = threading.Event()

    def stop(frame: FrameType) -> None:
        hits.append((threading.get_ident(), frame.f_code.co_name))
        hit.set()

    strikes = Strikes(stop)
    thread, other = start(getattr(looping, name)), start(looping.calls)
    for _ in range(20):
        hit.clear()
        assert thread.ident is not None
        strikes.strike(thread.ident)
        assert hit.wait(10)
        assert not strikes.cancel()  # nothing is left of it
    assert {ident for ident, _ in hits} == {thread.ident}
    assert {function for _, function in hits} <= {"calls", "step", "spins"}
    assert other.is_alive() and len(hits) == 20


def test_what_waits_in_c_is_not_stopped_and_can_be_taken_back(start: Start) -> None:
    enough = threading.Lock()
    enough.acquire()
    hits: list[FrameType] = []
    strikes = Strikes(hits.append)
    thread = start(enough.acquire)
    assert thread.ident is not None
    strikes.strike(thread.ident)
    assert strikes.cancel() and not strikes.cancel()
    enough.release()
    thread.join(10)
    assert hits == []


def test_a_thread_that_has_ended_is_no_trouble(start: Start) -> None:
    thread = start(int)
    thread.join(10)
    assert thread.ident is not None
    strikes = Strikes(lambda frame: None)
    strikes.strike(thread.ident)
    assert strikes.cancel()


def test_nothing_is_traced_afterwards(looping: Looping, start: Start) -> None:
    traced: list[object] = []
    done = threading.Event()

    def stop(frame: FrameType) -> None:
        looping.goes_on = False

    def work() -> None:
        looping.calls()
        traced.append(sys.gettrace())
        done.set()

    strikes = Strikes(stop)
    thread = start(work)
    assert thread.ident is not None
    strikes.strike(thread.ident)
    assert done.wait(10) and traced == [None]
