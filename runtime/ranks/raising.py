"""Raising an exception in a thread from outside: CPython does so at the next Python instruction it comes to."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

unmet: dict[int, Callable[[], object]] = {}
"""By thread what raises in it. The runtime calls it where it has done what user code wanted, and bears that."""


def meet() -> None:
    """Raise what waits for this thread."""
    if (strike := unmet.get(threading.get_ident())) is not None:
        strike()


def raise_in(thread: int, error: type[BaseException]) -> None:
    """Raise `error` in the thread of this identity; it replaces one that the thread has not met yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


class _Over(BaseException):
    """What a thread raises in itself to be done with it."""


def be_done_with_raising() -> None:
    """Let something be raised in this thread, in place of what it has not met yet.

    Python 3.11 looks out for such exceptions in all threads until one of them meets one: to take one back with NULL, or
    to put one into a thread that ends, leaves it on watch for good, and then a thread that is traced by a debugger or
    for coverage never gets into the next function, but looks for ever.
    """
    try:
        raise_in(threading.get_ident(), _Over)
        while True:  # it is raised at the next turn
            pass
    except _Over:
        pass
