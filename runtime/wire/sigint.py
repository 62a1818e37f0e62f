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


plain = _plainest()
"""The module of those functions."""

handler: Callable[[], Handler] = functools.partial(plain.getsignal, _SIGINT)
"""What Ctrl-C does now."""

let: Callable[[Handler], Handler] = functools.partial(plain.signal, _SIGINT)
"""Let Ctrl-C do this from now on; what it did before. On the main thread only."""
