"""The line under `%mesh up`, kept true: when ranks die, fail, work or come back, it is drawn again in its place.

It asks nobody: a change of a rank's state starts a timer, and the timer draws. While nothing happens it costs nothing.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable

from ..kernel.mesh import Mesh
from .stage import NotebookStage

PERIOD = 1.0
"""Seconds between two drawings at least."""

SETTLE = 0.25
"""Seconds that a change waits for others: of a short cell nothing is shown."""

MOST_RANKS = 256
"""Of a larger mesh the line is 25 KB or more, too much to send again and again."""

Draw = Callable[[], dict[str, str]]


class Strip:
    """One live line of a mesh; it ends with the mesh, in its last state."""

    def __init__(self, mesh: Mesh, stage: NotebookStage, draw: Draw) -> None:
        self._mesh = mesh
        self._stage = stage
        self._draw = draw
        self._display_id = uuid.uuid4().hex
        self._shown: dict[str, str] = {}
        self._drawn = 0.0
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()  # of the timer: ranks change on the loop's thread

    def show(self) -> None:
        """Draw it here; live only where a reader sees that, and the line is small."""
        self._shown, self._drawn = self._draw(), time.monotonic()
        self._stage.display(self._shown, display_id=self._display_id)
        if self._stage.is_in_cell and self._mesh.num_ranks <= MOST_RANKS:
            self._stage.leave()
            self._mesh.roster.on_change.append(self._on_change)

    def _on_change(self, rank: int) -> None:
        with self._lock:
            if self._timer is None:
                wait = max(SETTLE, self._drawn + PERIOD - time.monotonic())
                self._timer = threading.Timer(wait, self._draw_again)
                self._timer.daemon = True
                self._timer.start()

    def _draw_again(self) -> None:
        with self._lock:
            self._timer, self._drawn = None, time.monotonic()
        line = self._draw()
        if line != self._shown:
            self._shown = line
            self._stage.display(line, display_id=self._display_id, update=True)
