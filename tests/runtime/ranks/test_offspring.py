"""What an interrupt of a call reaches beside it, and what not."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack

import pytest

from meshbook.runtime.ranks import offspring
from tests.runtime.ranks.ticks import tick

Interrupt = Callable[[offspring.Moment, float], bool]

pytestmark = [pytest.mark.slow, pytest.mark.real]


@pytest.fixture
def stack() -> Generator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def sleeper(stack: ExitStack, is_apart: bool = False) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(["sleep", "1000"], start_new_session=is_apart)
    stack.callback(child.wait)
    stack.callback(child.kill)
    return child


def begun() -> offspring.Moment:
    """Of a call that begins now: this process has other children."""
    tick()
    return offspring.Moment(time.monotonic(), offspring.of_multiprocessing())


def of_thread(call: offspring.Moment, struck: float) -> bool:
    """The same for what this thread does since. `time.perf_counter` is the same clock on Linux."""
    return offspring.interrupt_those_of_threads({threading.get_native_id(): call.began}, struck)


REACHES = [
    offspring.interrupt_those_of,
    pytest.param(
        of_thread, marks=pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose they are")
    ),
]
either = pytest.mark.parametrize("interrupt", REACHES)


@either
def test_whoever_was_started_between_the_two_moments(stack: ExitStack, interrupt: Interrupt) -> None:
    before = sleeper(stack)
    call = begun()
    own, elsewhere = sleeper(stack), sleeper(stack, is_apart=True)
    tick()
    struck = time.monotonic()
    tick()
    later = sleeper(stack)
    assert interrupt(call, struck)
    assert own.wait(20) == -signal.SIGINT
    assert (before.poll(), elsewhere.poll(), later.poll()) == (None, None, None)
    assert not interrupt(call, struck)


def test_who_has_no_children_knows_it_at_once() -> None:
    script = "import subprocess\nfrom meshbook.runtime.ranks.offspring import are_there_any as asked\n"
    script += "print(asked())\nchild = subprocess.Popen(['true'])\nprint(asked())\nchild.wait()\nprint(asked())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]


@either
def test_what_it_has_started_itself_hears_it_too(stack: ExitStack, interrupt: Interrupt) -> None:
    call = begun()
    script = "import subprocess, sys\nchild = subprocess.Popen(['sleep', '1000'])\n"
    script += "try: print(child.pid, flush=True); child.wait()\nexcept KeyboardInterrupt: print(child.wait())"
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    stack.enter_context(parent)
    assert parent.stdout is not None and int(parent.stdout.readline())
    assert interrupt(call, time.monotonic())
    assert parent.stdout.read() in (f"{-signal.SIGINT}\n", "0\n")  # 0: interrupted as it had just heard how that ended


@either
def test_daemons_and_whom_somebody_tends_are_left_alone(stack: ExitStack, interrupt: Interrupt) -> None:
    call = begun()
    daemon = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,), daemon=True)
    daemon.start()
    stack.callback(daemon.join)
    stack.callback(daemon.kill)
    tended = sleeper(stack)
    with offspring.tends(tended.pid):
        assert not interrupt(call, time.monotonic())
    assert interrupt(call, time.monotonic())
    assert tended.wait(20) == -signal.SIGINT
    assert daemon.is_alive()
    assert os.getpgid(daemon.pid or 0) == os.getpgrp()


def test_a_thread_that_has_ended_has_started_nobody() -> None:
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    assert thread.native_id is not None
    assert not offspring.interrupt_those_of_threads({thread.native_id: 0.0}, time.perf_counter())
