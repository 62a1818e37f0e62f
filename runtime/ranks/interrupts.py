"""Interrupting the call that a rank runs, and only that one.

An interrupt asked for call 7 must not hit call 8, nor the runtime's own code between them: the handler compares the
call it was meant for with the one that runs, and holds back while the runtime works.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType


class Interrupts:
    """Decides, when SIGINT arrives on the main thread, whether user code is to be interrupted."""

    def __init__(self) -> None:
        self.running = 0
        """The call whose user code runs now; 0 when none does."""
        self._wanted = 0
        self._shields = 0
        self._held_back = False
        self._main = threading.main_thread().ident

    def install(self) -> None:
        signal.signal(signal.SIGINT, self._on_signal)

    def request(self, call: int) -> int:
        """From the control thread: interrupt `call` (0: whichever runs). Returns the call that runs, 0 for none."""
        running = self.running
        if running and call in (0, running):
            self._wanted = running
            assert self._main is not None
            signal.pthread_kill(self._main, signal.SIGINT)
        return running

    def open_for(self, call: int) -> AbstractContextManager[None]:
        """User code of `call` runs inside; an interrupt of it raises `KeyboardInterrupt` there."""
        return _Open(self, call)

    def begin(self, call: int) -> None:
        self._held_back = False
        self.running = call

    def end(self) -> None:
        self.running = 0

    @contextmanager
    def shield(self) -> Generator[None]:
        """The runtime works inside, called from user code: an interrupt waits until it is done."""
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        if self._held_back and not self._shields:
            self._held_back = False
            raise KeyboardInterrupt

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        wanted, self._wanted = self._wanted, 0
        if not self.running or (wanted and wanted != self.running):
            return  # it was meant for a call that has ended meanwhile
        if self._shields:
            self._held_back = True
        else:
            raise KeyboardInterrupt


class _Open:
    """Around user code. Not a generator: one that is interrupted in its last line is finished later, by whoever."""

    __slots__ = ("_call", "_interrupts")

    def __init__(self, interrupts: Interrupts, call: int) -> None:
        self._interrupts, self._call = interrupts, call

    def __enter__(self) -> None:
        self._interrupts.begin(self._call)

    def __exit__(self, *_: object) -> None:
        self._interrupts.end()
