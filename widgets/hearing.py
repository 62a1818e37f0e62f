"""What actors print, in the output of the cell that called them: folded, with a gutter that says who, also late."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from ..kernel.output.fold import FoldedGap, LineFolder
from ..kernel.output.weave import FoldedLine
from ..runtime.controller.roster import Roster
from ..runtime.ranges import ranks_text
from ..runtime.wire.tape import Event, Text
from .live import BUDGET, WINDOW, are_spread, blocks, full_line, spread_line
from .stage import Stage

_STRIDE = 1 << 32
"""Between the numbers under which the ranks of two meshes are folded: more than a mesh has ranks."""

_FEW = 16
"""Up to so many ranks, what one mesh says after another stands after it; with more, folding matters more."""


class Hearing:
    """The listener of one cell: ranks of all meshes that work for it are heard here.

    `name_of` says how a mesh is called in the gutter; empty where there is no need to.
    """

    def __init__(
        self, stage: Stage, name_of: Callable[[Roster], str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stage = stage
        self._name_of = name_of
        self._clock = clock
        self._meshes: list[int] = []  # numbers only: a cell must not keep the logs of meshes that are gone
        self._names: list[str] = []
        self._num_ranks = 0
        self._last = 0
        self._folder = LineFolder((), WINDOW, BUDGET, spreads=True)
        self._width = 3
        self._has_news = False
        self._is_over = self._is_late_full = self._has_spread = False
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()  # the loop, the timer and the cell's own thread tell what is due

    def on_said(self, roster: Roster, rank: int, event: Event) -> None:
        """A rank has printed something for this cell."""
        if not isinstance(event, Text):
            return  # displays are for cells that run on the mesh
        with self._lock:
            number = self._number(roster, rank)
            if self._has_news and self._last != roster.mesh and self._num_ranks <= _FEW:
                self._tell(self._folder.flush(self._clock()))
            self._last = roster.mesh
            self._folder.feed(number, event.stream, event.text, self._clock())
            self._tell(self._folder.poll(self._clock()))
            self._has_news = True
            self._look_again()

    def settle(self) -> None:
        """Tell all that was said: the caller is about to go on."""
        with self._lock:
            if self._has_news:
                self._has_news = False
                self._tell(self._folder.flush(self._clock()))

    def end(self) -> None:
        """The cell has ended; what comes from now on is late, and has a budget of its own."""
        with self._lock:
            if not self._is_over:
                self._tell(self._folder.finish(self._clock()))
                self._stage.leave()
                self._is_over, self._has_news = True, False
                self._folder = LineFolder((), WINDOW, BUDGET, spreads=True)
                self._meshes, self._names, self._num_ranks = [], [], 0

    def _look_again(self) -> None:
        if self._timer is None:
            self._timer = threading.Timer(WINDOW, self._on_time)
            self._timer.daemon = True
            self._timer.start()

    def _on_time(self) -> None:
        """A window after something was said: tell it; a line that goes on later is cut here."""
        with self._lock:
            self._timer = None
            if self._has_news:
                self._has_news = False
                self._tell(self._folder.flush(self._clock()) if self._is_over else self._folder.poll(self._clock()))
                self._has_news = self._folder.is_waiting
                if self._has_news:
                    self._look_again()

    def _number(self, roster: Roster, rank: int) -> int:
        if roster.mesh not in self._meshes:
            self._folder.add(len(self._meshes) * _STRIDE + rank for rank in roster.states)
            self._meshes.append(roster.mesh)
            self._names.append(self._name_of(roster))
            self._num_ranks += len(roster.states)
            widest = f"{self._names[-1]} {ranks_text(roster.states)}".strip()
            self._width = max(self._width, len(widest))
        return self._meshes.index(roster.mesh) * _STRIDE + rank

    def _tell(self, lines: Sequence[FoldedLine | FoldedGap]) -> None:
        for stream, text in blocks(lines, self._width, who=self._who):
            self._stage.write(text, stream)
        if not self._has_spread and are_spread(lines):
            self._has_spread = True
            self._stage.write(spread_line(self._width))
        if self._is_over and self._folder.is_full and not self._is_late_full:
            self._is_late_full = True
            self._stage.write(full_line(self._width))

    def _who(self, numbers: Sequence[int]) -> str:
        """Example: `ping 0-1`, or where two meshes said the same, `ping 0-1 pong 0`."""
        by_mesh: dict[int, list[int]] = {}
        for number in numbers:
            by_mesh.setdefault(number // _STRIDE, []).append(number % _STRIDE)
        parts = [f"{self._names[mesh]} {ranks_text(ranks)}".strip() for mesh, ranks in sorted(by_mesh.items())]
        return " ".join(parts)
