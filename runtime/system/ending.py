"""The end of the program, by a thread that is not its main one: its exit code, after `finally` blocks and handlers."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

from . import own_streams

_is_leaving = threading.Event()
_exit_code: list[int] = []
"""Until it is told to Python."""


def leave(code: int) -> None:
    """End the program from a thread that is not its main one: with this exit code, handlers run, no traceback."""
    if _is_leaving.is_set():
        return  # a second rank has failed: what runs as the program ends is not interrupted
    _is_leaving.set()
    _exit_code.append(code)
    if callable(signal.getsignal(signal.SIGINT)):
        sys.excepthook = _LeaveQuietly(sys.excepthook)
        interrupt(threading.main_thread().ident or 0)
    else:  # a background job of a shell, say, which ignores it
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
        _exit_now(code)


def interrupt(thread: int) -> None:
    """Raise `KeyboardInterrupt` in the main thread, by a signal, because that also wakes one that sleeps.

    But not one that is about to: it has let go of the GIL, and looks for signals when it wakes up. One that stands
    where it stood gets another.
    """
    for pause in (0.05, 0.2, 1.0):
        before = place_of(thread)
        signal.pthread_kill(thread, signal.SIGINT)
        time.sleep(pause)
        if place_of(thread) != before:
            return


def place_of(thread: int) -> tuple[FrameType | None, int]:
    """Where a thread stands: its innermost frame, and the instruction there."""
    frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage]
    return frame, -1 if frame is None else frame.f_lasti


class _LeaveQuietly:
    """The excepthook while the program is made to leave: the interrupt that woke the main thread becomes the exit."""

    def __init__(self, former: Any) -> None:
        self._former = former

    def __call__(self, kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if issubclass(kind, KeyboardInterrupt):
            raise SystemExit(_exit_code.pop())
        self._former(kind, error, trace)


def _exit_with_code() -> None:
    """The program has caught the interrupt and ended by itself: it has failed all the same."""
    if _exit_code:
        _exit_now(_exit_code[0])


def _exit_now(code: int) -> None:
    own_streams.flush()
    os._exit(code)


# Registered when the library is imported, so that it runs after all handlers that came later.
atexit.register(_exit_with_code)
