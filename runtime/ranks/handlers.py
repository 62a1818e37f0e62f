"""Signal handlers of user code: what they raise is raised in user code, and nowhere else.

A rank's main thread is the runtime's own between cells, and Python calls handlers there too. torch's DataLoader has one
that raises when a worker has died: it would end the rank, with all that the user has on it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import update_wrapper
from types import FrameType
from typing import Any

from .interrupts import Interrupts

Handler = Callable[[int, FrameType | None], Any]


def install(interrupts: Interrupts) -> Callable[[], None]:
    """From now on what `signal.signal` is given in this process is called by a `_Gate`; returns what undoes it.

    `signal.getsignal` gives what was given. Of SIGINT `Interrupts` has its own, which looks where user code runs; who
    puts another one there for a moment means just that moment. That one is told of each interrupt once: it may take the
    second for the user's wish to leave at once.
    """
    plain_signal, plain_getsignal = signal.signal, signal.getsignal

    def set_handler(signum: int, handler: Any, /) -> Any:
        if callable(handler) and getattr(handler, "__self__", None) is not interrupts:
            handler = (_Ear if signum == signal.SIGINT else _Gate)(handler, interrupts)
        return _within(plain_signal(signum, handler))

    def getsignal(signum: int, /) -> Any:
        return _within(plain_getsignal(signum))

    def undo() -> None:
        signal.signal, signal.getsignal = plain_signal, plain_getsignal

    signal.signal = update_wrapper(set_handler, plain_signal)
    signal.getsignal = update_wrapper(getsignal, plain_getsignal)
    return undo


def _within(handler: object) -> object:
    return handler.handler if isinstance(handler, _Gate | _Ear) else handler


class _Gate:
    """A handler that does its work wherever it is called, and interrupts only user code."""

    def __init__(self, handler: Handler, interrupts: Interrupts) -> None:
        self.handler = handler
        self._interrupts = interrupts
        self._pid = os.getpid()

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        if self._interrupts.is_open or os.getpid() != self._pid:  # a forked child has no runtime to protect
            self.handler(signum, frame)
            return
        try:
            self.handler(signum, frame)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it must not end what runs here
            error.add_note(f"raised by a handler of {_name(signum)}")
            self._interrupts.hold(error)


class _Ear:
    """A handler of SIGINT, of the user's."""

    def __init__(self, handler: Handler, interrupts: Interrupts) -> None:
        self.handler = handler
        self._interrupts = interrupts

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        self._interrupts.heard()
        self.handler(signum, frame)


def _name(signum: int) -> str:
    """What a signal is called: of those for real time only the first and the last have names."""
    return next((known.name for known in signal.Signals if known == signum), f"signal {signum}")
