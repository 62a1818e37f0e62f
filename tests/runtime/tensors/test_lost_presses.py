"""A press that Python swallows in a callback of a weak reference comes again."""

from __future__ import annotations

import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from meshbook.runtime.tensors import lost_presses

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals to a thread")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is told as ever."""
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lost_presses._hearing(lambda error: told.append(error.exc_value)))
    return told


class Freed:
    """Calls something of this module as it is freed, from where errors are swallowed."""

    def __init__(self, module: str, work: Callable[[], object]) -> None:
        def free(_: object) -> None:
            work()

        free.__module__ = module
        self._reference = weakref.ref(value := self._Value(), free)
        del value

    class _Value:
        """It has weak references."""


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def wrong() -> None:
    raise ValueError("wrong")


def test_it_comes_again(told: list[Any]) -> None:
    with pytest.raises(KeyboardInterrupt):
        Freed("torch.utils.weak", press)
        threading.Event().wait(10)
    assert told == []


@pytest.mark.parametrize(("module", "work"), [("weakref", wrong), ("train", press)])
def test_other_errors_are_told_as_ever(told: list[Any], module: str, work: Callable[[], object]) -> None:
    Freed(module, work)
    [error] = told
    assert isinstance(error, ValueError if work is wrong else KeyboardInterrupt)
    threading.Event().wait(0.05)  # nothing comes


def test_it_is_told_where_nobody_would_hear_it(told: list[Any]) -> None:
    former = signal.getsignal(signal.SIGINT)

    def press_and_ignore() -> None:
        try:
            press()
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    try:
        Freed("weakref", press_and_ignore)
    finally:
        signal.signal(signal.SIGINT, former)
    assert [type(error) for error in told] == [KeyboardInterrupt]
