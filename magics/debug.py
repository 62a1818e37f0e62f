"""`%mesh debug`: stop ranks where they are, or look at what their error has left, and talk with them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..kernel.debug.asking import Asker, asker
from ..kernel.debug.editors import bridges, folder_of, listen, snippet
from ..kernel.debug.ladder import Rung, enter
from ..kernel.debug.post_mortem import post_mortem
from ..kernel.debug.sitting import serve
from ..kernel.mesh import Mesh
from ..runtime import meanwhile
from ..runtime.ranges import named, ranks_text
from ..widgets.stage import NotebookStage
from ..widgets.status import axes_text
from .book import Book
from .inquiries import Debug
from .options import GrammarError

if TYPE_CHECKING:
    from ..widgets.console import ConsoleView


COST = "on Python 3.11 code on these ranks is slower (2 to 18 times) while an editor is attached"


@dataclass(slots=True)
class Consoles:
    """The debugger's consoles of a notebook: one for each mesh, however often it is shown."""

    shell: Any
    _live: list[tuple[Mesh, ConsoleView]] = field(default_factory=list[tuple[Mesh, "ConsoleView"]])

    def show(self, mesh: Mesh) -> None:
        """Show the console of a mesh here. Raises `GrammarError` where nobody can see it, or it hears nobody."""
        from ..widgets.base import deafness, has_widgets  # with anywidget, which takes 0.2 s
        from ..widgets.console import ConsoleView

        if not has_widgets(self.shell):
            raise GrammarError("this front-end shows no widgets: `%mesh debug` asks in a cell")
        if why := deafness(self.shell):
            raise GrammarError(f"no console here: {why}; `%mesh debug` asks in the cell")
        self._live = [each for each in self._live if each[1].is_open]
        found = next((view for other, view in self._live if other is mesh), None)
        if found is None:
            found = ConsoleView(mesh, f"debugger of mesh {mesh.name}   {axes_text(mesh)}")
            self._live.append((mesh, found))
        found.show(NotebookStage(self.shell))

    def close(self) -> None:
        """End all of them."""
        for _, view in self._live:
            view.console.close()
        self._live.clear()


def debug(book: Book, consoles: Consoles, args: Debug) -> None:
    """Talk with ranks, and say what cannot be done."""
    mesh = book.get(args.mesh)
    user = asker()
    if args.dap:
        _let_editors_in(mesh, book.select(args.selector, mesh) if args.selector else mesh.roster.alive())
        return
    if args.console:
        consoles.show(mesh)
    if args.pm:
        is_told = mesh.desk.has_console or args.console
        ranks = book.select(args.selector, mesh) if args.selector else mesh.with_errors()
        _post_mortem(mesh, ranks, user if is_told else _someone(user))
        return
    if args.selector:
        _attach(mesh, book.select(args.selector, mesh))
    elif not mesh.desk.is_wanted and not args.console:
        print("no rank is stopped: `%mesh debug 3` stops rank 3 where it is, `%mesh debug --pm` looks at an error")
    if args.console or not mesh.desk.is_wanted:
        return
    if mesh.desk.has_console:
        print("the prompt is in the console of this mesh: its close button brings it back into the cells")
    elif mesh.desk.is_served or meanwhile.is_waiting():
        print("the prompt is in the cell that runs")
    else:
        is_over = lambda: not any(state.is_at_work for state in mesh.roster.states.values())  # noqa: E731
        serve(mesh, _someone(user), is_over, _tell, stays=True)


def _someone(user: Asker | None) -> Asker:
    if user is None:
        raise GrammarError("this front-end has no prompt: `%mesh stacks` shows where ranks are without one")
    return user


def _attach(mesh: Mesh, ranks: Sequence[int]) -> None:
    for rung, found in enter(mesh, ranks).items():
        if rung is Rung.STACK:
            print(f"{named(found)}: {rung.value}")
            print(mesh.stacks(found))
        elif rung is not Rung.LIVE:
            print(f"{named(found)}: {rung.value}")


def _let_editors_in(mesh: Mesh, ranks: Sequence[int]) -> None:
    sockets, without = listen(mesh, ranks)
    for rank in ranks:
        print(f"rank {rank}: {sockets.get(rank) or without[rank]}")
    if sockets:
        pids = {rank: mesh.roster.states[rank].pid for rank in sockets}
        launch = snippet(mesh.name, bridges(mesh, sockets), pids)
        print(f"cells are files in {folder_of(mesh)}; for VS Code's launch.json:\n{launch}")
        if sys.version_info < (3, 12):
            print(COST)


def _post_mortem(mesh: Mesh, ranks: Sequence[int], user: Asker | None) -> None:
    if not ranks:
        raise GrammarError("no rank has an error to look at: the next cell, and the next call of its actor, drop it")
    if without := post_mortem(mesh, ranks, user, _tell):
        print(f"{named(without)}: no error was left there")


def _tell(ranks: Sequence[int], mark: str, line: str) -> None:
    print(f"{ranks_text(ranks)} {mark} {line}")
