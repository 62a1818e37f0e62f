"""Who hears Ctrl-C: asked and set at every call that is waited for.

`signal.signal` and `signal.getsignal` look up what they give back among the members of an enum, and a function is none:
that exception costs 5 microseconds each time, a sixth of a call. The functions of C below them do not look.

Example:
    >>> former = let(signal.default_int_handler)
    >>> handler() is signal.default_int_handler
    True
    >>> let(former) is signal.default_int_handler
    True
"""

from __future__ import annotations

import functools
import importlib
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any] | int | None
"""A function; or a number, for what the system does by itself; None for what was not set from Python."""

_SIGINT = int(signal.SIGINT)


def _plainest() -> Any:
    try:
        return importlib.import_module("_signal")
    except ImportError:  # no CPython
        return signal


_signal = _plainest()


handler: Callable[[], Handler] = functools.partial(_signal.getsignal, _SIGINT)
"""What Ctrl-C does now."""

let: Callable[[Handler], Handler] = functools.partial(_signal.signal, _SIGINT)
"""Let Ctrl-C do this from now on; what it did before. On the main thread only."""


class Deferred:
    """On the main thread, turns SIGINT into a flag for what must not be torn, and calls `wake`.

    Who uses it looks at the flag after the block, and calls the handler that was there before.
    """

    def __init__(self, wake: Callable[[], object]) -> None:
        self.came = False
        self._wake = wake
        self._former: Any = None
        self._frame: FrameType | None = None
        self._is_installed = False

    def __enter__(self) -> Deferred:
        if threading.get_ident() == threading.main_thread().ident:
            self._former = handler()
            if callable(self._former):
                let(self._note)
                self._is_installed = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_installed:
            let(self._former)

    def deliver(self) -> None:
        """Let the handler that was there before do what it does on Ctrl-C."""
        self._former(_SIGINT, self._frame)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.came = True
        self._frame = frame
        self._wake()
