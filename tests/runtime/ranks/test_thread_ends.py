"""How threads that die of an error are told of."""

from __future__ import annotations

import linecache
import threading
from collections.abc import Callable
from typing import Any

import pytest

from meshbook.runtime.ranks import thread_ends
from meshbook.runtime.system.ours import HOME


def made(file: str, source: str) -> Callable[[], Any]:
    """The `work` of a source that stands for a file."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names: dict[str, Any] = {}
    exec(compile(source, file, "exec"), names)
    return names["work"]


def told_of(work: Callable[[], Any], capsys: pytest.CaptureFixture[str]) -> str:
    former, threading.excepthook = threading.excepthook, thread_ends.tell
    try:
        thread = threading.Thread(target=work, name="loader")
        thread.start()
        thread.join()
    finally:
        threading.excepthook = former
    return capsys.readouterr().err


def test_it_begins_with_the_line_of_the_user(capsys: pytest.CaptureFixture[str]) -> None:
    work = made("<ipython-input-5-1a2b3c4d>", "def work():\n    return {}['lr']\n")
    lines = told_of(work, capsys).splitlines()
    assert lines[:4] == [
        "Exception in thread loader:",
        "Traceback (most recent call last):",
        '  File "<ipython-input-5-1a2b3c4d>", line 2, in work',
        "    return {}['lr']",
    ]
    assert lines[-1] == "KeyError: 'lr'"


def test_one_of_ours_is_told_whole(capsys: pytest.CaptureFixture[str]) -> None:
    said = told_of(made(f"{HOME}/runtime/loop.py", "def work():\n    1 / 0\n"), capsys)
    assert threading.__file__ in said and said.endswith("ZeroDivisionError: division by zero\n")


def test_who_leaves_is_told_of_by_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    assert told_of(made("train.py", "def work():\n    raise SystemExit(3)\n"), capsys) == ""


def test_the_hook_of_somebody_else_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs: Any = lambda args: None  # noqa: E731
    monkeypatch.setattr(threading, "excepthook", theirs)
    thread_ends.install()
    assert threading.excepthook is theirs
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)
    thread_ends.install()
    assert threading.excepthook is thread_ends.tell
