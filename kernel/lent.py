"""Cells of the notebook itself whose classes live on ranks: ranks know their lines, for tracebacks and the debugger."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ..runtime.wire import codec
from .guest import Lines, cells_in
from .source import call_cell

if TYPE_CHECKING:
    from .mesh import Mesh


class Lent:
    """What of the notebook's own text the ranks of one mesh were told."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._cells: dict[str, Lines] = {}  # by file
        mesh.roster.on_spawn.append(self.lend)

    def lend(self, cls: type[object]) -> None:
        """Tell ranks the cells in which a class stands, before it comes to them."""
        if cls.__module__ != "__main__":
            return
        new = {file: (file, name, text) for file, name, text in cells_in(codec.dumps(cls)) if file not in self._cells}
        self._cells |= new
        for cell in new.values():
            call_cell(*cell)  # for who tells here where ranks are
        self._tell(self._mesh.roster.alive(), list(new.values()))

    def renew(self, ranks: Collection[int]) -> None:
        """These ranks are new processes."""
        self._tell(ranks, list(self._cells.values()))

    def _tell(self, ranks: Collection[int], cells: list[Lines]) -> None:
        if cells:
            self._mesh.send_ahead(ranks, "know", cells)
