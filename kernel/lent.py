"""Cells of the notebook itself whose code lives on ranks: ranks know their lines, for tracebacks and the debugger."""

from __future__ import annotations

from collections.abc import Collection
from types import FunctionType
from typing import TYPE_CHECKING
from weakref import WeakSet

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
        self._seen: WeakSet[object] = WeakSet()
        mesh.roster.on_code.append(self.lend)

    def lend(self, code: object) -> None:
        """Tell ranks the cells in which a class or a function stands, before it comes to them."""
        is_function = isinstance(code, FunctionType)  # a class may have got other methods since
        if getattr(code, "__module__", None) != "__main__" or (is_function and code in self._seen):
            return
        new = {file: (file, name, text) for file, name, text in cells_in(_pickled(code)) if file not in self._cells}
        for cell in new.values():
            call_cell(*cell)  # for who tells here where ranks are
        self._tell(self._mesh.roster.alive(), list(new.values()))
        self._cells |= new
        if is_function:
            self._seen.add(code)

    def renew(self, ranks: Collection[int]) -> None:
        """These ranks are new processes."""
        self._tell(ranks, list(self._cells.values()))

    def _tell(self, ranks: Collection[int], cells: list[Lines]) -> None:
        if cells:
            self._mesh.send_ahead(ranks, "know", cells)


def _pickled(code: object) -> bytes:
    try:
        return codec.dumps(code)
    except codec.EncodeError:
        return b""  # who sends it says so
