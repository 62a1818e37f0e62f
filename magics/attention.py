"""Ranks that stop in the debugger while no `%%on_mesh` cell waits for them: an actor that a plain cell has called."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any

from ..kernel.debug.asking import Asker, asker
from ..kernel.debug.desk import SOON
from ..kernel.debug.sitting import Tell, announce, serve
from ..kernel.fold import ranks_text
from ..kernel.mesh import Mesh
from ..runtime import meanwhile
from ..widgets.stage import NotebookStage
from .book import Book


class Attention:
    """Serves stops on the main thread where that blocks on an answer; elsewhere it says who is stopped."""

    def __init__(self, shell: Any, book: Book) -> None:
        self._shell = shell
        self._book = book

    def load(self) -> None:
        meanwhile.duties.append(self.look)
        self._book.on_add = self._watch
        self._shell.events.register("pre_run_cell", self._on_cell)

    def unload(self) -> None:
        meanwhile.duties.remove(self.look)
        self._book.on_add = None
        self._shell.events.unregister("pre_run_cell", self._on_cell)

    def _on_cell(self, info: object) -> None:
        for mesh in list(self._book.meshes.values()):
            mesh.desk.begin_cell()

    def look(self) -> None:
        """Let the user talk with who is stopped, in the cell whose thread waits."""
        for mesh in list(self._book.meshes.values()):
            if mesh.desk.stops.waiting and not mesh.desk.is_served and not mesh.is_down:
                serve(mesh, asker(), lambda: False, _print)

    def _watch(self, mesh: Mesh) -> None:
        mesh.desk.listeners.append(lambda: self._on_stop(mesh))

    def _on_stop(self, mesh: Mesh) -> None:
        """On the loop's thread, which must not wait for what is asked of ranks."""
        if mesh.desk.stops.waiting and not mesh.desk.is_served and not meanwhile.is_waiting():
            stage = NotebookStage(self._shell)

            def tell(ranks: Sequence[int], mark: str, line: str) -> None:
                stage.write(f"{ranks_text(ranks)} {mark} {line}\n", "stderr")

            args = (mesh, asker(), tell)
            threading.Thread(target=_announce, args=args, name="meshbook-told", daemon=True).start()


def _announce(mesh: Mesh, user: Asker | None, tell: Tell) -> None:
    # A cell that was sent a moment ago is about to serve it.
    if not mesh.desk.wait(lambda: mesh.desk.is_served or not mesh.desk.stops.waiting, SOON):
        announce(mesh, user, tell)


def _print(ranks: Sequence[int], mark: str, line: str) -> None:
    print(f"{ranks_text(ranks)} {mark} {line}", file=sys.stderr)
