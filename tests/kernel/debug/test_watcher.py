"""Breakpoints that are armed from outside: hit at their line only, under their condition, and gone when disarmed."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

import pytest

from meshbook.kernel.debug import watcher as watcher_module
from meshbook.kernel.debug.breakpoints import Breakpoint, is_named, target_of
from meshbook.kernel.debug.watcher import Watcher

CELL = "<ipython-input-5-00000009>"
SOURCE = """\
def work(n):
    total = 0
    for i in range(n):
        total += i
    return total

def other(n):
    return n + 1

async def later(n):
    return other(n)
"""


@pytest.fixture
def names() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(SOURCE, CELL, "exec"), names)
    return names


Hits = list[tuple[int, dict[str, Any], str]]


@pytest.fixture
def watched() -> Iterator[tuple[Watcher, Hits]]:
    hits: Hits = []

    def stop(frame: FrameType, why: str) -> None:
        hits.append((frame.f_lineno, dict(frame.f_locals), why))

    former = sys.gettrace()
    watcher = Watcher(stop)
    try:
        yield watcher, hits
    finally:
        watcher.arm([])
        sys.settrace(former)


def run(watcher: Watcher, function: Callable[[], Any]) -> Any:
    watcher.take_up()
    try:
        return function()
    finally:
        if sys.version_info < (3, 12):
            sys.settrace(None)


def test_a_line_of_a_cell(names: dict[str, Any], watched: tuple[Watcher, Hits]) -> None:
    watcher, hits = watched
    watcher.arm([Breakpoint(1, cell="cell 5", line=4)])
    assert run(watcher, lambda: names["work"](3)) == 3
    assert [(line, local["i"]) for line, local, _ in hits] == [(4, 0), (4, 1), (4, 2)]
    assert watcher.hits() == {1: 3} and hits[0][2] == "breakpoint 1: cell 5 line 4"


def test_a_condition(names: dict[str, Any], watched: tuple[Watcher, Hits]) -> None:
    watcher, hits = watched
    watcher.arm([Breakpoint(1, cell="cell 5", line=4, condition="i == 70")])
    run(watcher, lambda: names["work"](100))
    assert [local["i"] for _, local, _ in hits] == [70]


def test_a_condition_that_fails_stops_and_says_why(names: dict[str, Any], watched: tuple[Watcher, Hits]) -> None:
    watcher, hits = watched
    watcher.arm([Breakpoint(2, cell="cell 5", line=5, condition="nothing > 1")])
    run(watcher, lambda: names["work"](1))
    assert hits[0][2] == "breakpoint 2: its condition fails: NameError: name 'nothing' is not defined"


def test_a_condition_on_the_rank_where_nothing_is_called_so(
    names: dict[str, Any], watched: tuple[Watcher, Hits]
) -> None:
    watcher, hits = watched
    watcher.arm([Breakpoint(2, cell="cell 5", line=5, condition="rank == 1")])
    run(watcher, lambda: names["work"](1))
    hint = "(ranks stand before the condition: `%mesh break 5:5 1`)"
    assert hits[0][2] == f"breakpoint 2: its condition fails: NameError: name 'rank' is not defined {hint}"


def test_code_that_is_made_again_and_again_is_forgotten(
    names: dict[str, Any], watched: tuple[Watcher, Hits], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher_module, "_MOST_PLANS", 8)
    watcher, hits = watched
    watcher.arm([Breakpoint(1, cell="cell 5", line=4)])
    run(watcher, lambda: [eval("work(1)", names) for _ in range(100)])
    assert watcher.hits() == {1: 100} and len(hits) == 100
    assert len(watcher._plans) <= 8


def test_a_condition_is_looked_at_once_a_turn(names: dict[str, Any], watched: tuple[Watcher, Hits]) -> None:
    watcher, hits = watched
    seen = names["seen"] = []
    watcher.arm([Breakpoint(1, cell="cell 5", line=4, condition="seen.append(i) or i in (2, 3)")])
    run(watcher, lambda: names["work"](5))
    assert seen == [0, 1, 2, 3, 4]
    assert [local["i"] for _, local, _ in hits] == [2, 3] and watcher.hits() == {1: 2}


def test_a_condition_that_comes_to_fail(names: dict[str, Any], watched: tuple[Watcher, Hits]) -> None:
    watcher, hits = watched
    watcher.arm([Breakpoint(1, cell="cell 5", line=4, condition="1 / (2 - i) < 0")])
    run(watcher, lambda: names["work"](4))
    failed = "breakpoint 1: its condition fails: ZeroDivisionError: division by zero"
    assert [(local["i"], why) for _, local, why in hits] == [
        (2, failed),
        (3, "breakpoint 1: cell 5 line 4 if 1 / (2 - i) < 0"),
    ]


def test_the_same_code_with_other_globals(watched: tuple[Watcher, Hits]) -> None:
    watcher, hits = watched
    code = compile(SOURCE, CELL, "exec")
    rooms: list[dict[str, Any]] = [{"limit": 1}, {"limit": 2}]
    for room in rooms:
        exec(code, room)
    watcher.arm([Breakpoint(1, cell="cell 5", line=4, condition="i == limit")])
    run(watcher, lambda: [room["work"](4) for room in (*rooms, *rooms)])
    assert [local["i"] for _, local, _ in hits] == [1, 2, 1, 2]


def test_a_cell_that_is_run_again(watched: tuple[Watcher, Hits]) -> None:
    watcher, hits = watched
    watcher.arm([Breakpoint(1, cell="cell 5", line=2, condition="i == 1")])

    def run_both() -> None:
        for _ in range(2):
            exec(compile("for i in range(3):\n    x = i\n", CELL, "exec"), {})

    run(watcher, run_both)
    assert [local["i"] for _, local, _ in hits] == [1, 1]


def test_two_conditions_on_a_line(names: dict[str, Any], watched: tuple[Watcher, Hits]) -> None:
    watcher, hits = watched
    watcher.arm([Breakpoint(n, cell="cell 5", line=4, condition=f"i == {n}") for n in (1, 3)])
    run(watcher, lambda: names["work"](5))
    assert [local["i"] for _, local, _ in hits] == [1, 3] and watcher.hits() == {1: 1, 3: 1}


def test_a_function_by_its_name(names: dict[str, Any], watched: tuple[Watcher, Hits]) -> None:
    watcher, hits = watched
    watcher.arm([Breakpoint(1, function="other")])
    run(watcher, lambda: names["work"](3))
    assert not hits
    run(watcher, lambda: names["other"](3))
    assert [line for line, _, _ in hits] == [8]


def test_a_coroutine(names: dict[str, Any], watched: tuple[Watcher, Hits]) -> None:
    watcher, hits = watched
    watcher.arm([Breakpoint(1, cell="cell 5", line=11)])

    def drive() -> None:
        with pytest.raises(StopIteration):
            names["later"](1).send(None)

    run(watcher, drive)
    assert [line for line, _, _ in hits] == [11]


def test_what_is_off_or_disarmed_does_not_stop(names: dict[str, Any], watched: tuple[Watcher, Hits]) -> None:
    watcher, hits = watched
    watcher.arm([Breakpoint(1, cell="cell 5", line=4, is_on=False), Breakpoint(2, cell="cell 6", line=4)])
    run(watcher, lambda: names["work"](3))
    watcher.arm([Breakpoint(1, cell="cell 5", line=4)])
    watcher.arm([])
    run(watcher, lambda: names["work"](3))
    assert not hits and not watcher.is_armed


@pytest.mark.skipif(sys.version_info < (3, 12), reason="on 3.11 only the main thread is traced")
def test_in_a_thread_that_runs_already(names: dict[str, Any], watched: tuple[Watcher, Hits]) -> None:
    watcher, hits = watched
    names["go"] = go = threading.Event()
    exec(
        compile("def wait():\n    while not go.wait(0.01):\n        seen = 1\n", "<ipython-input-7-00000001>", "exec"),
        names,
    )
    thread = threading.Thread(target=names["wait"])
    thread.start()
    try:
        watcher.arm([Breakpoint(1, cell="cell 7", line=3)])
        deadline = time.monotonic() + 10
        while not hits and time.monotonic() < deadline:
            thread.join(0.001)
    finally:
        go.set()
        thread.join()
    assert {line for line, _, _ in hits} == {3}


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("5:3", {"cell": "cell 5", "line": 3}),
        ("cell 5:3", {"cell": "cell 5", "line": 3}),
        ("train.py:12", {"file": "train.py", "line": 12}),
        ("src/train.py:12", {"file": "src/train.py", "line": 12}),
        ("warm-up:2", {"cell": "warm-up", "line": 2}),
        ("forward", {"function": "forward"}),
        ("Model.forward", {"function": "Model.forward"}),
    ],
)
def test_places(text: str, fields: dict[str, Any]) -> None:
    assert target_of(text) == fields


@pytest.mark.parametrize("text", ["5:", ":3", "a b", "train.py", "5", "x:y"])
def test_no_places(text: str) -> None:
    with pytest.raises(ValueError, match="is no place: write FILE:LINE"):
        target_of(text)


def test_lines_are_counted_from_1() -> None:
    with pytest.raises(ValueError, match="'5:0' is no place: lines are counted from 1"):
        target_of("5:0")


@pytest.mark.parametrize(
    ("function", "is_it"),
    [("work", True), ("train.work", True), ("src.train.work", True), ("rain.work", False), ("other.work", False)],
)
def test_a_function_may_be_named_with_its_module(function: str, is_it: bool) -> None:
    names: dict[str, Any] = {}
    exec(compile("def work():\n    return 1\n", "/home/u/src/train.py", "exec"), names)
    assert bool(Breakpoint(1, function=function).lines_in(names["work"].__code__, is_named)) is is_it


@pytest.mark.parametrize(("function", "is_it"), [("nets.work", True), ("src.nets.work", True), ("init.work", False)])
def test_a_function_of_a_package_goes_by_the_package(function: str, is_it: bool) -> None:
    names: dict[str, Any] = {}
    exec(compile("def work():\n    return 1\n", "/home/u/src/nets/__init__.py", "exec"), names)
    assert bool(Breakpoint(1, function=function).lines_in(names["work"].__code__, is_named)) is is_it


def test_files_match_by_the_end_of_their_path() -> None:
    def code_in(file: str) -> Any:
        return compile("x = 1\ny = 2\n", file, "exec")

    point = Breakpoint(1, file="src/train.py", line=2)
    assert point.lines_in(code_in("/home/u/src/train.py"), is_named) == {2}
    assert not point.lines_in(code_in("/home/u/other/train.py"), is_named)
    assert not point.lines_in(code_in("train.py"), is_named)
    assert not Breakpoint(1, file="train.py", line=9).lines_in(code_in("/home/u/train.py"), is_named)


class Rearmed(Watcher):
    """Another thread arms it anew while it finds out where the first breakpoint is."""

    def _lines_of(self, code: CodeType) -> Any:
        lines = super()._lines_of(code)
        if 4 in lines:
            self.arm([Breakpoint(2, cell="cell 5", line=8)])
        return lines


def test_what_is_disarmed_while_it_is_looked_for_is_not_armed_again(names: dict[str, Any]) -> None:
    hits: list[str] = []
    watcher = Rearmed(lambda _, why: hits.append(why))
    watcher.arm([Breakpoint(1, cell="cell 5", line=4, condition="i == 1")])
    run(watcher, lambda: names["work"](3))  # which may stop: it has begun before
    hits.clear()
    run(watcher, lambda: [names["work"](3), names["other"](3)])
    watcher.arm([])
    assert hits == ["breakpoint 2: cell 5 line 8"]
