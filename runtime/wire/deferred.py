"""Signal handlers of the user's, Ctrl-C's among them, that are called after what must not be torn.

What a handler raises comes out at the line that runs: in the middle of a message, or right after a lock was taken.
"""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from .sigint import plain

_SIGNALS = tuple(
    int(getattr(signal, name))
    for name in ("SIGINT", "SIGALRM", "SIGCHLD", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
"""Those that programs have handlers for which raise: time-outs, workers that died, requests to end."""

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Waiting = Callable[[], AbstractContextManager[None]]
"""Gives a block in which handlers are called at once."""

_getsignal, _signal = plain.getsignal, plain.signal


class Deferred:
    """On the main thread, notes signals inside of the block in place of calling their handlers, and calls `wake`.

    Who uses it looks at `came` after the block, and lets it `deliver`.
    """

    __slots__ = ("_formers", "_noted", "_wake", "came")

    def __init__(self, wake: Callable[[], object] = lambda: None) -> None:
        self.came = False
        self._wake = wake
        self._formers: dict[int, Any] = {}
        self._noted: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> Deferred:
        if threading.get_ident() == threading.main_thread().ident:
            try:
                for signum in _SIGNALS:
                    if callable(former := _getsignal(signum)):
                        self._formers[signum] = former
                        _signal(signum, self._note)
            except BaseException:  # the handler of one whose turn had not come
                self._restore()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def paused(self) -> _Paused:
        """Within the block, one in which handlers are called at once: first for what has come before."""
        return _Paused(self)

    def deliver(self) -> None:
        """Call the handlers; the first that raises ends it, as it would have without."""
        self.came, noted, self._noted = False, self._noted, []
        for signum, frame in noted:
            self._formers[signum](signum, frame)

    def _restore(self) -> None:
        """All of them, also if one raises as soon as it may."""
        left = list(self._formers.items())
        try:
            while left:
                _signal(*left[-1])
                left.pop()
        finally:
            for each in left:
                _signal(*each)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.came = True
        self._noted.append((signum, frame))
        self._wake()


class _Paused:
    __slots__ = ("_of",)

    def __init__(self, of: Deferred) -> None:
        self._of = of

    def __enter__(self) -> None:
        self._of.__exit__()
        self._of.deliver()

    def __exit__(self, *_: object) -> None:
        self._of.__enter__()


def untorn(function: Callable[P, R]) -> Callable[P, R]:
    """The same function, which no handler ends in the middle: they are called when it has returned (2 microseconds)."""

    @functools.wraps(function)
    def whole(*args: P.args, **kwargs: P.kwargs) -> R:
        interrupt = Deferred()
        try:
            with interrupt:
                return function(*args, **kwargs)
        finally:
            if interrupt.came:
                interrupt.deliver()

    return whole


def made_whole(make: Callable[[Waiting], T], undo: Callable[[T], object]) -> T:
    """What `make` makes, which no handler ends in the middle: where one raises as it is made, it is undone at once.

    `make` is given what lets handlers in while it waits for something, before it has made anything.

    Example:
        >>> def make(waiting):
        ...     with waiting():
        ...         "wait for a host"
        ...     return "ranks"
        >>> made_whole(make, undo=print)
        'ranks'
    """
    interrupt, made = Deferred(), list[T]()
    try:
        with interrupt:
            made.append(make(interrupt.paused))
        interrupt.deliver()
    except BaseException:
        for each in made:
            undo(each)
        raise
    return made[0]


def wholly(do: Callable[[], object], undo: Callable[[], object]) -> None:
    """Do it, which no handler ends in the middle; where one raises then, undo it before that goes on."""
    made_whole(lambda _: do(), lambda _: undo())
