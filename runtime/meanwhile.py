"""What the main thread does while it blocks on an answer: in a notebook, its user talks with ranks that are stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from .wire.reactor import Reactor, Signal

PAUSE = 0.05
"""Seconds between two looks at whether there is something to do."""

duties: list[Callable[[], object]] = []
"""Called on the main thread while it waits; each takes as long as it likes, which counts for no timeout."""

_is_busy = False
_num_waiting = 0


def wait(reactor: Reactor, event: Signal, timeout: float | None, *, stays_awake: bool = False) -> bool:
    """`reactor.wait`, with the duties done meanwhile; what those block on themselves is waited for plainly."""
    __tracebackhide__ = True
    if not duties or _is_busy or threading.current_thread() is not threading.main_thread():
        return reactor.wait(event, timeout, stays_awake=stays_awake)
    global _num_waiting
    _num_waiting += 1
    try:
        return _wait(reactor, event, timeout, stays_awake)
    finally:
        _num_waiting -= 1


def is_waiting() -> bool:
    """Does the main thread wait now, so that duties are done?"""
    return _num_waiting > 0


def _wait(reactor: Reactor, event: Signal, timeout: float | None, stays_awake: bool) -> bool:
    __tracebackhide__ = True
    left = timeout
    while left is None or left > 0:
        started = time.monotonic()
        if reactor.wait(event, PAUSE if left is None else min(PAUSE, left), stays_awake=stays_awake):
            return True
        left = None if left is None else left - (time.monotonic() - started)
        _do_duties()
    return event.is_set()


def _do_duties() -> None:
    global _is_busy
    _is_busy = True
    try:
        for duty in list(duties):
            duty()
    finally:
        _is_busy = False
