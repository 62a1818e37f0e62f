"""Cells that run beside the notebook's main thread, in subshells: Python hears Ctrl-C on the main thread alone."""

from __future__ import annotations

from collections.abc import Callable

Press = Callable[[], object]

presses: list[Press] = []
"""What Ctrl-C does for each cell that is driven in a subshell now."""

_hear: Callable[[], bool] | None = None


def hear_by(hear: Callable[[], bool] | None) -> None:
    """Who is to call `presses` at Ctrl-C, if this thread is that of a subshell, and says so; None: nobody."""
    global _hear
    _hear = hear


def join(press: Press) -> bool:
    """From the thread of a cell that begins to be driven: whether Ctrl-C calls `press` from now on."""
    presses.append(press)
    if not hear():
        presses.remove(press)
        return False
    return True


def leave(press: Press) -> None:
    """It is driven no more."""
    presses.remove(press)
    hear()


def hear() -> bool:
    """From the thread of a cell, as long as it is driven: whether Ctrl-C comes by way of `presses`."""
    return _hear is not None and _hear()
