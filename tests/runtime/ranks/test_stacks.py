"""What a rank tells of its threads, and what is read of one that cannot: without ranks."""

from __future__ import annotations

import asyncio
import faulthandler
import inspect
import json
import os
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.runtime.engines import outside, spy
from meshbook.runtime.ranks import dumps, mailbox, stacks, sync_driver
from meshbook.runtime.ranks.dumps import Process
from meshbook.runtime.ranks.stacks import Spot

MAILBOX = str(mailbox.__file__)
DRIVERS = str(sync_driver.__file__)


def spots(*places: tuple[str, str]) -> tuple[Spot, ...]:
    return tuple(Spot(file, number, name) for number, (file, name) in enumerate(places, 1))


def names(found: tuple[Spot, ...]) -> list[str]:
    return [spot.name for spot in found]


def test_a_stack_is_told_from_the_endpoint_on() -> None:
    stack = spots(("runpy.py", "run"), (MAILBOX, "Mailbox.run"), (MAILBOX, "Mailbox._call"), ("mine.py", "step"))
    assert names(stacks.visible(stack)) == ["step"]
    assert names(stacks.visible(spots(("threading.py", "run"), (DRIVERS, "_Sync._serve"), ("m.py", "go")))) == ["go"]


def test_frames_of_ours_below_the_users_are_left_out() -> None:
    stack = spots((MAILBOX, "_call"), ("mine.py", "step"), (str(stacks.__file__), "anything"), ("lib.py", "wait"))
    assert names(stacks.visible(stack)) == ["step", "wait"]


def test_a_rank_that_waits_for_a_message_is_nowhere() -> None:
    assert stacks.visible(spots((MAILBOX, "Mailbox.run"), ("zmq/socket.py", "recv"))) == ()


def test_what_goes_on_between_cells_is_told_while_it_works() -> None:
    ours, theirs = str(stacks.HOME / "kernel/ranks/loop.py"), str(Path(asyncio.__file__).parent)
    waiting = (MAILBOX, "Mailbox.run"), (ours, "CellLoop.go_on"), (f"{theirs}/base_events.py", "run_forever")
    assert stacks.visible(spots(*waiting, ("/lib/selectors.py", "select"))) == ()
    assert names(stacks.visible(spots(*waiting, (f"{theirs}/events.py", "_run"), ("mine.py", "tick")))) == ["tick"]


def test_a_rank_that_starts_is_where_it_imports() -> None:
    worker = str(Path(MAILBOX).with_name("worker.py"))
    stack = spots(("runpy.py", "run"), (worker, "main"), (worker, "_prepare"), ("torch/__init__.py", "<module>"))
    assert names(stacks.visible(stack)) == ["<module>"]


@given(st.integers(0, 400))
def test_a_deep_stack_keeps_both_ends(depth: int) -> None:
    stack = spots(*[("a.py", str(number)) for number in range(depth)])
    kept = stacks.bounded(stack)
    assert len(kept) == min(depth, stacks.MAX_SPOTS)
    assert kept[:1] + kept[-1:] == stack[:1] + stack[-1:]


def test_of_a_recursion_of_thousands_the_ends_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "_ENDS", 20)

    def deeper(depth: int) -> list[str]:
        return deeper(depth - 1) if depth else [code.co_name for code, _ in stacks.lines_of(inspect.currentframe())]

    found = deeper(300)
    assert len(found) == 40 and found[20:] == ["deeper"] * 20 and "deeper" not in found[:5]


def test_other_threads_are_told_from_their_own_code_on() -> None:
    begun, end = threading.Event(), threading.Event()

    def my_work() -> None:
        begun.set()
        end.wait()

    thread = threading.Thread(target=my_work, name="loader")
    thread.start()
    begun.wait()
    found = stacks.sample(threading.get_ident())
    end.set()
    thread.join()
    mine = next(each for each in found.others if each.name == "loader")
    assert mine.spots[0].name.endswith("my_work")
    assert mine.spots[0].source in ("begun.set()", "end.wait()")


def test_a_coroutine_is_told_from_the_outside_in() -> None:
    async def inner() -> None:
        await asyncio.sleep(60)

    async def outer() -> None:
        await inner()

    async def look() -> tuple[Spot, ...]:
        coroutine = outer()
        task = asyncio.create_task(coroutine)
        await asyncio.sleep(0)
        found = stacks.sample(threading.get_ident(), coroutine).awaiting
        task.cancel()
        return found

    found = asyncio.run(look())
    assert [name.rpartition(".")[2] for name in names(found)] == ["outer", "inner", "sleep"]
    assert [spot.source for spot in found][:2] == ["await inner()", "await asyncio.sleep(60)"]


CELL = "<ipython-input-1-00000001>"
ONE = f'Stack (most recent call first):\n  File "b.py", line 3 in inner\n  File "{CELL}", line ??? in f\n'


def test_a_dump_is_whole_where_the_next_begins() -> None:
    whole = (Spot(CELL, 0, "f"), Spot("b.py", 3, "inner"))
    assert dumps.parse(ONE + ONE) == dumps.parse("rest of an old one\n" + ONE + ONE[:40]) == whole
    assert dumps.parse(ONE, is_all=True) == whole


@given(st.integers(0, len(ONE)))
def test_a_dump_that_is_being_written_is_waited_for(length: int) -> None:
    assert dumps.parse(ONE[:length]) == ()


def test_what_faulthandler_writes_is_read(tmp_path: Path) -> None:
    with (tmp_path / "dump").open("w+") as file:
        faulthandler.dump_traceback(file, all_threads=False)
        faulthandler.dump_traceback(file, all_threads=False)
        file.seek(0)
        found = dumps.parse(file.read())
    assert found[-1][0::2] == (__file__, "test_what_faulthandler_writes_is_read")


def status(state: str, caught: bool, blocked: bool) -> str:
    bit = f"{1 << dumps.signal_number() - 1:016x}"
    none = "0" * 16
    return f"Name:\tpython\nState:\t{state}\nSigBlk:\t{bit if blocked else none}\nSigCgt:\t{bit if caught else none}\n"


def test_a_process_is_asked_only_if_it_will_answer() -> None:
    assert Process.parse(status("S (sleeping)", caught=True, blocked=False)) == Process("S", True)
    assert Process.parse(status("T (stopped)", caught=True, blocked=True)) == Process("T", False)
    assert Process.parse(status("R (running)", caught=False, blocked=False)) == Process("R", False)
    # This very process has no handler: the signal would end it.
    assert dumps.take({0: os.getpid()}, 0.1) == {}


@pytest.fixture
def fake_spy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A program in the place of py-spy; what it does is for the test to write."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "py-spy"
        program.touch()
        program.chmod(program.stat().st_mode | stat.S_IEXEC)
        monkeypatch.setattr(spy, "program", lambda: str(program))
        yield program


SPIED = """[{"thread_name": "other", "os_thread_id": 8, "frames": []}, {"thread_name": "MainThread", "os_thread_id": 7,
"frames": [{"name": "inner", "filename": "b.py", "line": 3}, {"name": "f", "filename": "a.c", "line": null}]}]"""


def test_py_spy_tells_of_the_main_thread() -> None:
    expected = ("", (Spot("a.c", 0, "f"), Spot("b.py", 3, "inner")))
    assert spy.parse(SPIED, 7) == spy.parse(SPIED.replace('"os_thread_id": 7', '"os_thread_id": null'), 7) == expected
    assert spy.parse("[]", 7) == ("", ())


def test_py_spy_tells_of_who_holds_the_gil_if_the_main_thread_rests() -> None:
    other = SPIED.replace('"os_thread_id": 8, "frames": []', '"os_thread_id": 8, "owns_gil": true, "frames": []')
    assert spy.parse(other, 7).name == ""
    resting = other.replace('"b.py"', json.dumps(MAILBOX)).replace('"inner"', '"run"')
    assert spy.parse(resting, 7) == ("other", ())


def test_py_spy_is_asked_for_what_is_wanted(fake_spy: Path) -> None:
    fake_spy.write_text(f"#!/bin/sh\n[ \"$*\" = 'dump --json --native --pid 7' ] && echo '{SPIED}'\n")
    found, failed = spy.take({3: 7}, native=True, timeout=10)
    assert (names(found[3].spots), failed) == (["f", "inner"], {})


@pytest.mark.parametrize(
    ("script", "timeout", "why"),
    [
        ("echo one; echo 'Error: Permission Denied' >&2; exit 1", 10, "py-spy: Error: Permission Denied"),
        ("exit 3", 10, "py-spy: it exited with code 3"),
        ("exec sleep 60", 0.1, "py-spy: it did not end in time"),
    ],
)
def test_py_spy_that_fails_says_why(fake_spy: Path, script: str, timeout: float, why: str) -> None:
    fake_spy.write_text(f"#!/bin/sh\n{script}\n")
    assert spy.take({3: 7}, native=False, timeout=timeout) == ({}, {3: why})


def test_without_py_spy_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spy, "program", lambda: None)
    seen = outside.look({0: os.getpid()})
    assert seen == {0: outside.Glimpse(trouble=f"no answer to a signal either; {spy.MISSING}")}
    assert outside.look({0: os.getpid()}, native=True) == {0: outside.Glimpse(trouble=spy.MISSING)}
