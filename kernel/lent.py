"""Cells of the notebook itself whose code lives on ranks: ranks know their lines, for tracebacks and the debugger."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from .ranks.guest import Lines, cells_among
from .sources.source import call_cell

if TYPE_CHECKING:
    from .mesh import Mesh


class Lent:
    """What of the notebook's own text the ranks of one mesh were told."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._cells: dict[str, Lines] = {}  # by file
        mesh.roster.on_code.append(self.lend)

    def lend(self, files: Iterable[str]) -> None:
        """Tell ranks the cells among these files, before the functions that stand there come to them."""
        new = list(cells_among(file for file in files if file not in self._cells))
        for cell in new:
            call_cell(*cell)  # for who tells here where ranks are
        self._tell(self._mesh.roster.alive(), new)
        self._cells |= {cell[0]: cell for cell in new}

    def renew(self, ranks: Collection[int]) -> None:
        """These ranks are new processes."""
        self._tell(ranks, list(self._cells.values()))

    def _tell(self, ranks: Collection[int], cells: list[Lines]) -> None:
        if cells:
            self._mesh.send_ahead(ranks, "know", cells)
