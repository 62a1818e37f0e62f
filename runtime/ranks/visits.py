"""A way into the middle of user code: a function that the main thread of a rank calls at once, wherever it is.

A signal handler calls it, since nothing else gets into `time.sleep`, a lock or a socket. The system call that was cut
off goes on afterwards with the time it has left (PEP 475).
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from .interrupts import Interrupts

Visit = Callable[[FrameType], None]
"""Is called with the frame that runs. What it raises is raised there."""

_PAUSES = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064)
"""Seconds between two knocks, in case the first came where the runtime works, or was lost before a system call."""


def signal_number() -> int:
    """Not SIGUSR1 or SIGUSR2, which job schedulers and trainers use."""
    return signal.SIGRTMIN + 5 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR1


class Visits:
    """Lets visitors in, one at a time, and only where user code runs.

    `may_talk` says whether the main thread holds no lock that a visitor needs to say something.
    """

    def __init__(self, interrupts: Interrupts, may_talk: Callable[[], bool] = lambda: True) -> None:
        self._interrupts = interrupts
        self._may_talk = may_talk
        self._visit: Visit | None = None
        self._main = threading.main_thread().ident

    def install(self) -> None:
        """On the main thread of a rank, once. System calls are cut off by it: that is how a sleeper wakes."""
        signal.signal(signal_number(), self._on_signal)

    def request(self, visit: Visit) -> bool:
        """From another thread: let `visit` in. Whether user code runs at all; if so it comes in now or, where C code
        does not look for signals, as soon as that returns.
        """
        if not self._interrupts.running:
            return False
        self._visit = visit
        self._strike()
        for seconds in _PAUSES:
            if self._visit is not visit:
                break
            time.sleep(seconds)
            if self._visit is visit:
                self._strike()
        return True

    def cancel(self) -> bool:
        """Let nobody in any more; whether somebody still waited."""
        waited, self._visit = self._visit is not None, None
        return waited

    def _strike(self) -> None:
        assert self._main is not None
        signal.pthread_kill(self._main, signal_number())

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        visit = self._visit
        if visit is None or frame is None or not self._interrupts.is_open or not self._may_talk():
            return
        self._visit = None
        visit(frame)
