"""Watching a number on ranks while cells run: a thread asks their control threads, which read it and run nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .series import Series

if TYPE_CHECKING:
    from ..mesh import Mesh

LEAST = 0.1
"""Seconds between two looks, at the least."""

PERIOD = 0.5
"""Seconds between two drawings."""


class Watch:
    """One number of some ranks, or of all there are (`ranks` is None), over time. It ends with the mesh, or by `stop`.

    `draw` is called on the watch's own thread, at most twice a second and only when something has changed.
    """

    def __init__(self, mesh: Mesh, path: str, ranks: Sequence[int] | None, every: float) -> None:
        self.mesh = mesh
        self.path = path
        self.ranks = ranks
        self.every = max(every, LEAST)
        self.series = {rank: Series() for rank in self._present()}
        self.reasons: dict[int, str] = {}
        """Why a rank has no number there now."""
        self.draw: Callable[[], object] | None = None
        self._ended = threading.Event()
        self._has_news = False
        self._drawn = 0.0
        self._may_differ = True  # look once at the start
        self._thread = threading.Thread(target=self._run, name="meshbook-watch", daemon=True)

    def start(self) -> None:
        self.mesh.roster.on_change.append(self._on_change)
        self._thread.start()

    def stop(self) -> None:
        """End it, with a last look where the ranks are still there."""
        self._ended.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(2 * PERIOD)

    @property
    def is_over(self) -> bool:
        return self._ended.is_set()

    def _on_change(self, rank: int) -> None:
        """On the thread that runs the loop: a rank has answered, has come or is gone."""
        self._may_differ = True
        if self.mesh.is_down:
            self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(self.every):
            self._step(time.monotonic())
        self.mesh.roster.on_change.remove(self._on_change)
        if not self.mesh.is_down:
            self.look()
        if self.draw is not None:
            self.draw()

    def _step(self, now: float) -> None:
        """Look while cells run, and once after ranks have answered, also to what was shorter than a step."""
        has_changed, self._may_differ = self._may_differ, False
        if has_changed or self.mesh.running():
            self.look()
        if self._has_news and now - self._drawn >= PERIOD and self.draw is not None:
            self._has_news, self._drawn = False, now
            self.draw()

    def _present(self) -> list[int]:
        """Those of its ranks that the mesh has now: it may have been resized."""
        there = sorted(self.mesh.roster.states)
        return there if self.ranks is None else [rank for rank in self.ranks if rank in there]

    def look(self) -> None:
        """Ask the ranks now."""
        for rank, answer in self.mesh.sample(self.path, self._present(), timeout=min(self.every, 0.5)).items():
            series = self.series.setdefault(rank, Series())
            if isinstance(answer, str):
                self._has_news |= self.reasons.get(rank) != answer
                self.reasons[rank] = answer
            else:
                self.reasons.pop(rank, None)
                series.add(answer)
                self._has_news = True
