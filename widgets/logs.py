"""What ranks have said, from their logs, as their cells showed it: equal lines told once, a gutter that says who."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..kernel.output.fold import FoldedGap, LineFolder
from ..kernel.output.logs import LogLine, Section
from ..kernel.output.weave import FoldedLine
from .gutter import gutter
from .live import WINDOW, blocks
from .stage import Stage

BUDGET = 500_000
"""Characters that one look at the logs puts into the notebook: servers cut off who sends much more in a second."""

_LEAST = 2_000
"""Of these, so many for each cell at the least."""


class LogPrinter:
    """Puts lines of logs on a stage. Time is an argument."""

    def __init__(self, stage: Stage, ranks: Sequence[int], budget: int = BUDGET) -> None:
        self._stage = stage
        self._ranks = tuple(ranks)
        self._width = max(3, len(gutter(ranks)))
        self._folder = LineFolder(self._ranks, WINDOW, budget)

    @property
    def is_full(self) -> bool:
        """Has more come than it may show?"""
        return self._folder.is_full

    def add(self, rank: int, lines: Iterable[LogLine], now: float) -> None:
        """Take lines that a rank has said."""
        for line in lines:
            self._folder.feed(rank, line.stream, line.text, now)

    def poll(self, now: float) -> None:
        """Show what is due."""
        self._show(self._folder.poll(now))

    def finish(self, now: float) -> None:
        """Show all that is left."""
        self._show(self._folder.finish(now))

    def _show(self, lines: Sequence[FoldedLine | FoldedGap]) -> None:
        for stream, text in blocks(lines, self._width, "choose fewer with a selector, --cell, -n or --grep"):
            self._stage.write(text, stream)


def print_sections(stage: Stage, sections: Sequence[Section], now: float) -> None:
    """Show what ranks said, with the name of its cell above each part where there is more than one."""
    for section in sections:
        if len(sections) > 1:
            stage.write(f"── {section.title or 'outside of cells'}\n")
        printer = LogPrinter(stage, list(section.lines), max(BUDGET // len(sections), _LEAST))
        for rank, lines in section.lines.items():
            printer.add(rank, lines, now)
        printer.finish(now)
