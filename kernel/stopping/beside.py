"""Cells that run beside the notebook's main thread, in subshells: Python hears Ctrl-C on the main thread alone."""

from __future__ import annotations

import threading
from collections.abc import Callable

Press = Callable[[], object]

presses: list[Press] = []
"""What Ctrl-C does for each cell that is driven in a subshell now."""

_PATIENCE = 2.0
"""Seconds that the main thread may take to hear of a cell: between its own cells it may be held by a callback."""

Hear = Callable[[], threading.Event | None]
"""Sees to it that Ctrl-C calls `presses`; what is set as soon as it does, or None in a thread that is no subshell's."""

_hear: Hear | None = None


def hear_by(hear: Hear | None) -> None:
    """Who is to call `presses` at Ctrl-C; None: nobody."""
    global _hear
    _hear = hear


def join(press: Press) -> bool:
    """From the thread of a cell that begins to be driven: whether Ctrl-C calls `press` from now on.

    A cell that began before would print, and its user would press stop, where nobody hears it yet.
    """
    presses.append(press)
    if (heard := hear()) is None:
        presses.remove(press)
        return False
    heard.wait(_PATIENCE)
    return True


def leave(press: Press) -> None:
    """It is driven no more."""
    presses.remove(press)
    hear()


def hear() -> threading.Event | None:
    """From the thread of a cell, as long as it is driven: as `Hear`."""
    return None if _hear is None else _hear()
