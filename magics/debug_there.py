"""`%debug` after a cell of the mesh or a call of an actor has failed: the frames of its error are on the ranks."""

from __future__ import annotations

import sys
from collections.abc import Callable

from ..runtime.errors import MeshError
from .book import Book


def debug_there(
    former: Callable[[bool], object], book: Book, mesh_line: Callable[[str], object]
) -> Callable[..., object]:
    """What `%debug` calls: where the last error is one that ranks still hold it becomes `%mesh debug --pm`."""

    def debugger(force: bool = False) -> object:
        name = _holder(book, getattr(sys, "last_value", None))
        if name is None:
            return former(force)
        print(f"the error is on the ranks: `%mesh debug --pm -m {name}`")
        return mesh_line(f"debug --pm -m {name}")

    return debugger


def _holder(book: Book, error: object) -> str | None:
    """The name of the mesh whose ranks hold this error still; None where no mesh does."""
    if isinstance(error, MeshError):
        failed = [mesh.name for mesh in book.meshes.values() if mesh.last_failed and not mesh.is_down]
        return book.current if book.current in failed else next(iter(failed), None)
    mesh = book.raised_on(error)
    return mesh.name if mesh is not None and not mesh.is_down and mesh.with_errors() else None
