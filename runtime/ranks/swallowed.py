"""Interrupts that Python swallows: Ctrl-C must stop a cell or an endpoint also where it hits a finalizer.

What is raised in `__del__`, in a callback of a weak reference or of the collector, or while Python warns of a coroutine
that was never awaited, goes no further than `sys.unraisablehook`. Of thousands of presses on a busy machine a few come
there, most at the very beginning of a cell, where what the former one left is freed. They come again a moment later.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

from .strikes import strike_again

if TYPE_CHECKING:
    from .interrupts import Interrupts


def install(interrupts: Interrupts) -> None:
    """All other errors go to the hook that there was, an interrupt that user code raises itself among them."""
    tell = sys.unraisablehook

    def on_unraisable(swallowed: sys.UnraisableHookArgs) -> None:
        error = swallowed.exc_value
        comes_again = isinstance(error, KeyboardInterrupt) and (
            interrupts.strike_again() if _raiser(error.__traceback__) == interrupts.__module__ else strike_again(error)
        )
        if not comes_again:
            tell(swallowed)

    sys.unraisablehook = on_unraisable


def _raiser(traceback: TracebackType | None) -> str:
    """The module of the line that raised it."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return "" if traceback is None else str(traceback.tb_frame.f_globals.get("__name__"))
