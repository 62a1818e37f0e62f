"""Which ranks do not move: decided of what Linux says of their processes."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.runtime.controller.vitals import LONG_SLEEP, Halt, Vitals
from meshbook.runtime.system.proc import Stat, is_ending, parse_stat, stat_of

Until = Callable[..., Any]

PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def stat(state: str, ticks: int = 0) -> Stat:
    return Stat(state, 1, ticks, 1)


def test_a_long_sleep_counts_from_its_beginning_and_only_without_time_on_a_core() -> None:
    vitals = Vitals()
    assert vitals.step(0.0, {0: stat("D"), 1: stat("D")}) == {}
    assert vitals.step(1.0, {0: stat("D"), 1: stat("D", 5)}) == {}
    assert vitals.step(2.0, {0: stat("D"), 1: stat("D", 5)}) == {0: Halt("asleep", 0.0)}
    assert vitals.step(3.0, {0: stat("S"), 1: stat("D", 5)}) == {1: Halt("asleep", 1.0)}


def test_the_advice_names_what_to_type() -> None:
    assert Halt("stopped", 0).advice("77", "1") == "kill -CONT 77 goes on, `%mesh interrupt 1 --kill` ends it"
    assert "debugger lets go" in Halt("traced", 0).advice("77", "1")
    assert "kill" not in Halt("asleep", 0).advice("77", "1")


Steps = list[tuple[float, dict[int, Stat]]]

stats = st.builds(stat, st.sampled_from("RSDTtZ"), st.integers(0, 2))


@given(st.lists(st.tuples(st.floats(0.01, 3), st.dictionaries(st.integers(0, 2), stats)), max_size=30))
def test_whatever_comes_each_verdict_is_true(steps: Steps) -> None:
    vitals = Vitals()
    now, history = 0.0, list[tuple[float, dict[int, Stat]]]()
    for step, seen in steps:
        now += step
        history.append((now, seen))
        halts = vitals.step(now, seen)
        assert {rank for rank in seen if seen[rank].state in "Tt"} <= set(halts)
        for rank, halt in halts.items():
            states = [looks.get(rank) for when, looks in history if when >= halt.since]
            assert len({each.state if each else "" for each in states}) == 1, "it was so all the time"
            if halt.kind == "asleep":
                assert now - halt.since >= LONG_SLEEP
                assert len(set(states)) == 1, "it had no time on a core"


def test_the_name_of_a_process_may_hold_anything() -> None:
    assert parse_stat("7 (a) T (b ) S 1 42 7 0 -1 4 0 0 0 0 30 12 0 0 20 0 3 0 4711 0") == Stat("S", 42, 42, 4711)


@pytest.fixture
def child() -> Generator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        yield process
        process.kill()


@only_linux
@pytest.mark.real
def test_a_stopped_process_and_a_traced_one_are_seen(child: subprocess.Popen[bytes], until: Until) -> None:
    def verdicts() -> list[str]:
        seen = stat_of(child.pid)
        assert seen is not None
        return [str(halt) for halt in Vitals().step(0, {0: seen}).values()]

    until(lambda: verdicts() == [])  # it has slept uninterruptibly for a moment, perhaps
    os.kill(child.pid, signal.SIGSTOP)
    until(lambda: verdicts() == ["stopped (SIGSTOP)"])
    os.kill(child.pid, signal.SIGCONT)
    until(lambda: verdicts() == [])
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    if ptrace(PTRACE_SEIZE, child.pid, None, None):
        pytest.skip(f"no tracing here: {os.strerror(ctypes.get_errno())}")
    ptrace(PTRACE_INTERRUPT, child.pid, None, None)
    until(lambda: verdicts() == ["held by a debugger"])
    os.waitpid(child.pid, os.WUNTRACED)
    ptrace(PTRACE_DETACH, child.pid, None, None)
    until(lambda: verdicts() == [])


@only_linux
def test_a_process_that_is_gone_says_nothing(child: subprocess.Popen[bytes]) -> None:
    before = stat_of(child.pid)
    assert before is not None
    assert before.group == child.pid
    assert not is_ending(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_ending(child.pid), "nobody has asked for its exit status"
    child.wait()
    assert is_ending(child.pid)
    assert stat_of(child.pid) is None
