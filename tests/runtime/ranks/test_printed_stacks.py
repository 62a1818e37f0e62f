"""Printed stacks begin with the user's code, and are whole where there is none of it."""

from __future__ import annotations

import contextlib
import sys
import threading
import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from meshbook.runtime.ranks import printed_stacks
from meshbook.runtime.system.ours import HOME

FILES = {"o": f"{HOME}/runtime/ranks/mailbox.py", "u": "/home/u/theirs.py", "L": contextlib.__file__}


def stack_of(callers: str) -> str:
    """The stack of calls of code that is ours, the user's, or of a library, on a thread, which a library begins."""
    said: list[str] = []
    letters = {file: letter for letter, file in FILES.items()} | {threading.__file__: "t"}

    def look() -> None:
        said.extend(letters.get(each.filename, "") for each in traceback.extract_stack())

    call: Callable[[], Any] = look
    for caller in reversed(callers):
        names = {"inner": call}
        exec(compile("def call():\n    inner()\n", FILES[caller], "exec"), names)
        call = names["call"]
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    return "".join(said)


@pytest.fixture
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traceback, "walk_stack", traceback.walk_stack)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    printed_stacks.install()


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(
    ("callers", "shown"),
    [("ooLu", "u"), ("oLuLou", "uLou"), ("uL", "tttuL")],
)
def test_what_has_called_the_users_code_is_left_out(callers: str, shown: str) -> None:
    assert stack_of(callers) == shown


@pytest.mark.usefixtures("_installed")
def test_a_limit_counts_from_the_innermost() -> None:
    assert [each.name for each in traceback.extract_stack(limit=1)] == ["test_a_limit_counts_from_the_innermost"]
    frame, line = next(iter(traceback.walk_stack(None)))
    assert frame.f_code.co_name == "test_a_limit_counts_from_the_innermost" and line > 1


class Formatter:
    """What loguru has, and what of a stack it would print."""

    def _extract_frames(self, callers: str, is_first: bool, *, limit: int | None = None) -> tuple[list[Any], str]:
        return [(FILES[caller], 1, "call", "inner()") for caller in callers], "inner()"


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(
    ("callers", "shown"), [("LooLuoL", "uoL"), ("uL", "uL"), ("LuL", "LuL"), ("oo", "oo"), ("", "")]
)
def test_in_loguru_too(callers: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Formatter, "_extract_frames", Formatter._extract_frames)
    monkeypatch.setitem(sys.modules, "loguru._better_exceptions", SimpleNamespace(ExceptionFormatter=Formatter))
    printed_stacks._cut_in_loguru()
    entries, text = Formatter()._extract_frames(callers, True, limit=None)
    letters = {file: letter for letter, file in FILES.items()}
    assert ("".join(letters[entry[0]] for entry in entries), text) == (shown, "inner()")
