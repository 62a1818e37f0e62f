"""Ctrl-C in a program that drops tensors by the thousand: where Python swallows it, it comes again.

torch keeps books of tensors by weak references. A press that comes in one of their callbacks, as a tensor is freed,
goes no further than `sys.unraisablehook`. On ranks, where an interrupt is one of a call, `ranks.swallowed` does this.
"""

from __future__ import annotations

import _thread
import functools
import signal
import sys
import threading
import time
from collections.abc import Callable

from ..wire import sigint

_PAUSE = 0.001
"""Seconds until it comes again: the main thread is to be out of where it is lost."""

_SWALLOW = ("weakref", "torch")
"""The packages whose callbacks raise no such error themselves."""


@functools.cache
def hear() -> None:
    """From now on in this process. All other errors go to the hook that there was."""
    sys.unraisablehook = _hearing(sys.unraisablehook)


def _hearing(tell: Callable[[sys.UnraisableHookArgs], object]) -> Callable[[sys.UnraisableHookArgs], None]:
    def on_unraisable(swallowed: sys.UnraisableHookArgs) -> None:
        package = str(getattr(swallowed.object, "__module__", "")).partition(".")[0]
        is_press = isinstance(swallowed.exc_value, KeyboardInterrupt) and package in _SWALLOW
        if not (is_press and threading.current_thread() is threading.main_thread() and _comes_again()):
            tell(swallowed)

    return on_unraisable


def _comes_again() -> bool:
    """Whether it does: there may be no handler any more, or no thread left."""
    if not callable(sigint.handler()):
        return False
    try:
        _thread.start_new_thread(_press, ())
    except RuntimeError:
        return False
    return True


def _press() -> None:
    time.sleep(_PAUSE)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
