"""Actors that plain cells have called: who stops in the debugger, hangs or goes on is told, and served, in the cell."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Sequence
from typing import Any

from ..kernel.debug.asking import Asker, asker
from ..kernel.debug.bare import BareMesh, bare_meshes, on_bare
from ..kernel.debug.desk import SOON
from ..kernel.debug.sitting import announce, serve
from ..kernel.mesh import Mesh
from ..kernel.waiting.waited import Tell
from ..runtime import meanwhile
from ..runtime.controller.long_calls import actors_at_work
from ..runtime.errors import ActorError, SupervisionError
from ..runtime.ranges import ranks_text
from ..runtime.session import session
from ..runtime.wire.reactor import When
from ..widgets.stage import NotebookStage
from .awaiting import AwaitingCell
from .book import Book
from .faults import actors_go_on, own_actors_go_on
from .hanging_calls import HangingCalls
from .unattended import serve_stopped, tell

_MOMENT = 0.1
"""Seconds for the others of a call that has failed: most that work together fail together."""


class CalledActors:
    """Serves stops in the cell that blocks on an answer, or awaits one; elsewhere it says who is stopped."""

    def __init__(self, shell: Any, book: Book) -> None:
        self._shell = shell
        self._book = book
        self._hanging = HangingCalls(tell, lambda roster: any(mesh.roster is roster for mesh in book.meshes.values()))
        self._awaiting = AwaitingCell(shell, self._hanging.look)

    def load(self) -> None:
        meanwhile.duties.append(self.look)
        self._book.on_add = self._watch
        on_bare.append(self._watch_bare)
        self._shell.events.register("pre_run_cell", self._on_cell)
        self._shell.events.register("post_run_cell", self._on_end)
        self._awaiting.load()

    def unload(self) -> None:
        meanwhile.duties.remove(self.look)
        self._book.on_add = None
        on_bare.remove(self._watch_bare)
        self._shell.events.unregister("pre_run_cell", self._on_cell)
        self._shell.events.unregister("post_run_cell", self._on_end)
        self._awaiting.unload()

    def _on_cell(self, info: object) -> None:
        self._hanging.forget()
        for mesh in [*self._book.meshes.values(), *bare_meshes()]:
            mesh.desk.begin_cell()

    def _on_end(self, result: Any) -> None:
        """Who stops a wait for actors, or whose call fails on some, is told that others go on: the next call waits."""
        error = getattr(result, "error_in_exec", None)
        has_failed = isinstance(error, ActorError | SupervisionError) and hasattr(error, "by_rank")
        if not has_failed and not isinstance(error, KeyboardInterrupt | asyncio.CancelledError):
            return
        known = {mesh.roster: mesh for mesh in self._book.meshes.values()}
        rosters = list(session().root.rosters.values())
        if has_failed and rosters:  # they may be about to fail, too
            rosters[0].reactor.wait(When(lambda: not any(map(actors_at_work, rosters))), _MOMENT)
        for roster in rosters:
            mesh = known.get(roster)
            if told := actors_go_on(mesh) if mesh is not None else own_actors_go_on(roster):
                print(told, file=sys.stderr)

    def look(self) -> None:
        """Let the user talk with who is stopped, in the cell whose thread waits; tell which calls hang."""
        for mesh in list(self._book.meshes.values()):
            if mesh.desk.stops.waiting and not mesh.desk.is_served and not mesh.is_down:
                serve(mesh, asker(), lambda: False, tell, abort=mesh.interrupt_actors)
        serve_stopped()
        self._hanging.look()

    def _watch(self, mesh: Mesh) -> None:
        mesh.desk.listeners.append(lambda: self._on_stop(mesh))

    def _watch_bare(self, mesh: BareMesh) -> None:
        """A mesh that the notebook's code has made by itself; who is to be told is told by `unattended`."""

        def on_stop() -> None:
            if mesh.desk.stops.waiting and not mesh.desk.is_served and not meanwhile.is_waiting():
                self._awaiting.call(self.look, mesh.desk.leave)

        mesh.desk.listeners.append(on_stop)

    def _on_stop(self, mesh: Mesh) -> None:
        """On the loop's thread, which must not wait for what is asked of ranks."""
        if mesh.desk.stops.waiting and not mesh.desk.is_served and not meanwhile.is_waiting():
            if not mesh.desk.is_in_background:
                self._awaiting.call(self.look, mesh.desk.leave)
            stage = NotebookStage(self._shell)

            def write(ranks: Sequence[int], mark: str, line: str) -> None:
                stage.write(f"{ranks_text(ranks)} {mark} {line}\n", "stderr")

            args = (mesh, asker(), write)
            threading.Thread(target=_announce, args=args, name="meshbook-told", daemon=True).start()


def _announce(mesh: Mesh, user: Asker | None, tell: Tell) -> None:
    # A cell that was sent a moment ago is about to serve it.
    if not mesh.desk.wait(lambda: mesh.desk.is_served or not mesh.desk.stops.waiting, SOON):
        announce(mesh, user, tell)
