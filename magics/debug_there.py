"""`%debug` after a cell of the mesh has failed: the frames of its error are on the ranks, not here."""

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
        failed = [mesh.name for mesh in book.meshes.values() if mesh.last_failed and not mesh.is_down]
        if not failed or not isinstance(getattr(sys, "last_value", None), MeshError):
            return former(force)
        name = book.current if book.current in failed else failed[0]
        print(f"the error is on the ranks: `%mesh debug --pm -m {name}`")
        return mesh_line(f"debug --pm -m {name}")

    return debugger
