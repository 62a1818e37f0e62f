"""A breakpoint by a function's name means the user's code of that name, before what libraries have."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

from meshbook.kernel.debug.breakpoints import Breakpoint
from meshbook.kernel.debug.functions import doubt_of, has_user, is_for_us, is_theirs
from meshbook.kernel.debug.watcher import Watcher
from meshbook.runtime.system.ours import HOME

CELL_3 = "<ipython-input-3-00000003>"
CELL_4 = "<ipython-input-4-00000004>"
CELL_5 = "<ipython-input-5-00000005>"
CELL_7 = "<ipython-input-7-00000009>"


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    return vars(module)


def define(text: str, file: str, names: dict[str, Any]) -> None:
    exec(compile(text, file, "exec", dont_inherit=True), names)


@contextlib.contextmanager
def nothing() -> Iterator[None]:
    yield


def stops(armed: str, function: Callable[[], object], see: Callable[[FrameType], object] = bool) -> list[str]:
    """The files in which it stops; `see` is given the frames."""
    files: list[str] = []

    def stop(frame: FrameType, why: str) -> None:
        files.append(frame.f_code.co_filename)
        see(frame)

    former = sys.gettrace()
    watcher = Watcher(stop)
    watcher.arm([Breakpoint(1, function=armed)])
    watcher.take_up()
    try:
        function()
    finally:
        watcher.arm([])
        sys.settrace(former)
    assert watcher.hits().get(1, 0) == len(files)
    return files


def test_a_function_of_the_users_and_no_other(main: dict[str, Any]) -> None:
    define("def helper(x):\n    return x + 1\n", "/home/u/mine.py", main)
    other: dict[str, Any] = {}
    define("def helper(x):\n    return x + 2\n", "/home/u/other.py", other)

    def run() -> None:
        with nothing():  # through a function of contextlib that is called helper, too
            main["helper"](other["helper"](3))

    assert stops("helper", run) == ["/home/u/mine.py"]


def test_methods_of_the_users_before_those_of_libraries(main: dict[str, Any]) -> None:
    define("class Net:\n    def __enter__(self):\n        return self\n", CELL_3, main)

    def run() -> None:
        with nothing():
            main["Net"]().__enter__()

    assert stops("__enter__", run) == [CELL_3]


def test_a_library_where_the_user_has_none(main: dict[str, Any]) -> None:
    main["nothing"] = nothing
    define("def run():\n    with nothing():\n        pass\n", CELL_3, main)
    assert stops("helper", main["run"]) == [contextlib.__file__]


FAMILY = """
import functools, json, os
class Base:
    def run(self): return 1
    @property
    def size(self): return 2
class Net(Base):
    pass
net = Net()
class Made:
    def __init__(self): self.n = 7
def wrapped(f):
    @functools.wraps(f)
    def wrapper(*args): return f(*args)
    return wrapper
class Step:
    def go(self): return 3
    go = wrapped(go)
class OtherStep(Step):
    pass
@wrapped
def other(): return 4
short = other
made = lambda: 5
bound = functools.partial(made)
@functools.lru_cache
def kept(): return 6
"""


@pytest.mark.parametrize(
    ("armed", "call", "stops_in"),
    [
        ("Net.run", "Net().run()", ["run"]),
        ("Net.size", "Net().size", ["size"]),
        ("OtherStep.go", "OtherStep().go(), other()", ["go"]),
        ("short", "short(), OtherStep().go()", ["other"]),
        ("made", "made()", ["<lambda>"]),
        ("bound", "bound()", ["<lambda>"]),
        ("kept", "kept()", ["kept"]),
        ("__main__.made", "made()", ["<lambda>"]),
        ("json.JSONDecoder.decode", "json.loads('[]')", ["decode"]),
        ("os.path.isabs", "os.path.isabs('a')", ["isabs"]),
        ("net.run", "net.run()", ["run"]),
        ("Made", "Made()", ["__init__"]),
        ("Net.nosuch", "Net().run()", []),
        ("net.nosuch.run", "net.run()", []),
        ("Net", "Net().run()", []),
    ],
)
def test_what_a_name_leads_to(main: dict[str, Any], armed: str, call: str, stops_in: list[str]) -> None:
    main["__name__"] = "__main__"
    define(FAMILY, CELL_3, main)
    define(f"def run_it():\n    return {call}\n", CELL_4, main)
    names: list[str] = []
    stops(armed, main["run_it"], lambda frame: names.append(frame.f_code.co_name))
    assert names == stops_in
    assert doubt_of(Breakpoint(1, function=armed)) == ("" if stops_in else "unknown")


def test_what_a_name_leads_to_is_passed_over_where_we_call_it() -> None:
    text = """
def call():
    watcher.arm([point])
    watcher.take_up()
    json.loads("[]")
    watcher.arm([])
    sys.settrace(None)
"""
    watcher = Watcher(lambda frame, why: None)
    names = {"json": json, "sys": sys, "watcher": watcher, "point": Breakpoint(1, function="json.loads")}
    hits: list[dict[int, int]] = []
    for file in (f"{HOME}/kernel/ranks/agent.py", "theirs.py"):
        define(text, file, names)
        thread = threading.Thread(target=names["call"])  # with no frame of this file, as below
        thread.start()
        thread.join()
        hits.append(watcher.hits())
    assert hits == [{}, {1: 1}]


@pytest.mark.parametrize(
    ("callers", "is_it"),
    [("oL", True), ("L", False), ("ouL", False), ("uoL", False)],  # of ours, of the user's, of a library
)
def test_what_runs_for_us_alone(callers: str, is_it: bool) -> None:
    files = {"o": f"{HOME}/kernel/ranks/agent.py", "u": "theirs.py", "L": contextlib.__file__}
    said: list[bool] = []
    call: Callable[[], object] = bool
    for caller in reversed(callers):
        text = "def call():\n    said.append(is_for_us(sys._getframe()))\n    inner()\n"
        names: dict[str, Any] = {"said": said, "is_for_us": is_for_us, "sys": sys, "inner": call}
        define(text if caller == "L" else "def call():\n    inner()\n", files[caller], names)
        call = names["call"]
    thread = threading.Thread(target=call)  # with no frame of this file, which is the user's in an environment
    thread.start()
    thread.join()
    assert said == [is_it]


def test_the_same_function_under_an_earlier_number(main: dict[str, Any]) -> None:
    former: dict[str, Any] = {}
    define("def hook():\n    return 1\n", CELL_3, former)
    define("def hook():\n    return 1\n", CELL_7, main)
    assert is_theirs("hook", former["hook"].__code__)
    define("class Net:\n    def hook(self):\n        return 1\n", CELL_7, former)
    assert is_theirs("hook", former["Net"].hook.__code__) is False
    assert is_theirs("nowhere", former["hook"].__code__) is None


def test_what_the_user_has(main: dict[str, Any]) -> None:
    define(
        "class Net:\n    def forward(self):\n        def inner():\n            return 1\n",
        CELL_3,
        main,
    )
    assert [has_user(name) for name in ("forward", "Net.forward", "inner", "nothere", "ExitStack.close")] == [
        True, True, True, False, False
    ]  # fmt: skip


def test_what_stops_nowhere(main: dict[str, Any]) -> None:
    define("class Net:\n    def forward(self):\n        return 1\n", CELL_3, main)
    define("def deco(f):\n    def wrapper():\n        return f()\n    return wrapper\n", CELL_4, main)
    define("@deco\ndef plain():\n    return 1\n", CELL_5, main)
    known = "Net.forward", "ExitStack.close", "contextlib.ExitStack.close", "contextmanager", "json.dumps", "plain"
    assert [doubt_of(Breakpoint(1, function=name)) for name in known] == [""] * 6
    unknown = "Net.nosuch", "net.forward", "math.floor", "contextlib.nosuch"
    assert [doubt_of(Breakpoint(1, function=name)) for name in unknown] == ["unknown"] * 4


def test_a_file_that_was_edited_since(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "edited_here.py"
    file.write_text("def f():\n    return 1\n")
    module = ModuleType("edited_here")
    module.__file__ = str(file)
    define(file.read_text(), str(file), vars(module))
    monkeypatch.setitem(sys.modules, "edited_here", module)
    point = Breakpoint(1, file="edited_here.py", line=2)
    assert doubt_of(point) == ""
    file.write_text("def f(:\n")
    assert doubt_of(point) == "", "it is being edited"
    file.write_text("# words\ndef f():\n    return 1\n")
    assert doubt_of(point) == "old"
    assert doubt_of(Breakpoint(1, file="not_loaded.py", line=2)) == ""
