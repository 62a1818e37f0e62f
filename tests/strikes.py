"""Ctrl-C at each of the places where Python hears it in an operation, one after the other.

Python looks for signals as a function of its own begins, and as one of C returns; and in loops, which are left out
here. A profiler sees the same places.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import Any

CANNOT_BE_TORN = ("__enter__", "__exit__")
"""Methods of locks that are called by `with`, after which Python does not look."""


Place = tuple[str, CodeType, int]
"""What began or returned, in which code, and at which line."""


class _Profiler:
    """Strikes at the first place where none before it has; where it was, if there was one, it says afterwards."""

    def __init__(self, before: set[Place], spares: Callable[[FrameType], bool]) -> None:
        self.place = ""
        self._before = before
        self._spares = spares

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        is_place = event == "call" or (event == "c_return" and arg.__name__ not in CANNOT_BE_TORN)
        place = event, frame.f_code, frame.f_lineno
        if is_place and place not in self._before and not self._spares(frame):
            sys.setprofile(None)
            self._before.add(place)
            self.place = f"{event} in {frame.f_code.co_name}, {frame.f_code.co_filename}, line {frame.f_lineno}"
            signal.raise_signal(signal.SIGINT)


def strike_everywhere(
    operation: Callable[[], object],
    check: Callable[[], object],
    spares: Callable[[FrameType], bool] = lambda _: False,
    known: Iterable[Place] = (),
) -> set[Place]:
    """Interrupt it at each of its places, by one strike each time, and check what is there afterwards. Where it was.

    Those that are `known` are passed over. It must raise `KeyboardInterrupt` then, unless that came to where Python
    swallows all errors, as in callbacks of weak references; frames that `spares` says yes to are not struck at.
    """
    before = set(known)
    while place := _strike(operation, before, spares):
        try:
            check()
        except BaseException as error:
            error.add_note(f"after Ctrl-C at {place}")
            raise
    return before.difference(known)


def _strike(operation: Callable[[], object], before: set[Place], spares: Callable[[FrameType], bool]) -> str:
    """Where it was; empty if the operation was over before."""
    profiler, swallowed = _Profiler(before, spares), list[Any]()
    former, sys.unraisablehook = sys.unraisablehook, lambda args: swallowed.append(args.exc_type)
    try:
        sys.setprofile(profiler)
        try:
            operation()
        finally:
            sys.setprofile(None)
    except KeyboardInterrupt:
        pass
    else:
        assert not profiler.place or swallowed == [KeyboardInterrupt], f"nobody has heard Ctrl-C at {profiler.place}"
    finally:
        sys.unraisablehook = former
    return profiler.place
