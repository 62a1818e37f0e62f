"""The stop button while a cell is driven: presses are counted, not raised."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ...runtime.wire import sigint
from . import beside


class StopButton:
    """Counts Ctrl-C as long as a cell is driven from the main thread or in a subshell, and calls `on_press`.

    Raised wherever it hits, it would leave the ranks running with nobody to watch them. In an awaited cell ipykernel
    hears the first press only.
    """

    def __init__(self, on_press: Callable[[], object] = lambda: None) -> None:
        self._num_presses = 0
        self._on_press = on_press

    def __enter__(self) -> StopButton:
        self._is_installed = threading.current_thread() is threading.main_thread()
        if self._is_installed:
            self._former = sigint.let(self.press)
        self._is_beside = not self._is_installed and beside.join(self.press)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_installed:
            sigint.let(self._former)
        if self._is_beside:
            beside.leave(self.press)

    def press(self, *_: object) -> None:
        self._num_presses += 1
        self._on_press()

    def take(self) -> int:
        """How often it was pressed since the last time."""
        if self._is_beside:
            beside.hear()  # again: a cell of the main shell may have ended
        num_presses, self._num_presses = self._num_presses, 0
        return num_presses
