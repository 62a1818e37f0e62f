"""Ranks that fail or die while the user sits at a prompt: told then, as the thread that else tells waits for a line."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...runtime.roster import Roster

_MOMENT = 0.05
"""Seconds in which what comes is told together: most that fail together do so at once."""


class Lookout:
    """Inside of the block, calls `look` soon after the state of a rank has changed, on a thread of its own.

    Nobody looks any more when the block has ended, so that `look` may do what its thread does elsewhere.

    Example:
        with Lookout(mesh.roster, tell_deaths):
            line = input()
    """

    def __init__(self, roster: Roster, look: Callable[[], object]) -> None:
        self._roster = roster
        self._look = look
        self._news = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="meshbook-lookout", daemon=True)

    def __enter__(self) -> None:
        self._roster.on_change.append(self._on_change)
        self._news.set()  # who has died before this is told, too
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._roster.on_change.remove(self._on_change)
        self._over.set()
        self._news.set()
        self._thread.join()

    def _on_change(self, rank: int) -> None:
        self._news.set()

    def _watch(self) -> None:
        while True:
            self._news.wait()
            self._news.clear()  # first: what comes from now on is looked at next
            if self._over.wait(_MOMENT):
                return
            self._look()
