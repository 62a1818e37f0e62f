"""What an interrupt of a call reaches beside it, and what not."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack

import pytest

from meshbook.runtime.ranks import offspring

pytestmark = [pytest.mark.slow, pytest.mark.real]

LONG_AGO = offspring.Moment(time.monotonic() - 1000, frozenset())


@pytest.fixture
def stack() -> Generator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def tick() -> None:
    """Wait for the clock by which Linux dates processes."""
    ticks = lambda: int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))  # noqa: E731
    first = ticks()
    while ticks() < first + 2:
        pass


def sleeper(stack: ExitStack, is_apart: bool = False) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(["sleep", "1000"], start_new_session=is_apart)
    stack.callback(child.wait)
    stack.callback(child.kill)
    return child


def test_whoever_was_started_between_the_two_moments(stack: ExitStack) -> None:
    assert offspring.are_there_any() == bool(multiprocessing.active_children())
    sleeper(stack)
    tick()
    began = offspring.Moment(time.monotonic(), frozenset())
    own, elsewhere = sleeper(stack), sleeper(stack, is_apart=True)
    tick()
    struck = time.monotonic()
    tick()
    later = sleeper(stack)
    assert offspring.are_there_any()
    assert offspring.interrupt_those_of(began, struck)
    assert own.wait(20) == -signal.SIGINT
    assert (elsewhere.poll(), later.poll()) == (None, None)
    assert not offspring.interrupt_those_of(began, struck)


def test_what_it_has_started_itself_hears_it_too(stack: ExitStack) -> None:
    script = "import subprocess, sys\nchild = subprocess.Popen(['sleep', '1000'])\nprint(child.pid, flush=True)\n"
    script += "try: child.wait()\nexcept KeyboardInterrupt: print(child.wait())"
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    stack.enter_context(parent)
    assert parent.stdout is not None and int(parent.stdout.readline())
    assert offspring.interrupt_those_of(LONG_AGO, time.monotonic())
    assert parent.stdout.read() == f"{-signal.SIGINT}\n"


def test_daemons_and_whom_somebody_tends_are_left_alone(stack: ExitStack) -> None:
    daemon = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,), daemon=True)
    daemon.start()
    stack.callback(daemon.join)
    stack.callback(daemon.kill)
    tended = sleeper(stack)
    with offspring.tends(tended.pid):
        assert not offspring.interrupt_those_of(LONG_AGO, time.monotonic())
    assert offspring.interrupt_those_of(LONG_AGO, time.monotonic())
    assert tended.wait(20) == -signal.SIGINT
    assert daemon.is_alive()
    assert os.getpgid(daemon.pid or 0) == os.getpgrp()
