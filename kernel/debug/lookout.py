"""Ranks that fail or die while the user sits at a prompt: told then, as the thread that else tells waits for a line."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ...runtime.wire.deferred import wholly

PACE = 0.2
"""Seconds between two looks."""


class Lookout:
    """Inside of the block, calls `look` again and again, on a thread of its own.

    Nobody looks any more when the block has ended, so that `look` may do what its thread does elsewhere.

    Example:
        with Lookout(tell_deaths):
            line = input()
    """

    def __init__(self, look: Callable[[], object]) -> None:
        self._look = look
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="meshbook-lookout", daemon=True)

    def __enter__(self) -> None:
        wholly(self._thread.start, undo=self._end)

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(PACE):
            self._look()
