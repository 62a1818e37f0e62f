"""`%load_ext meshbook`: the magics, their completion, and the transformer that makes cells awaitable."""

from __future__ import annotations

import inspect as inspection
import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from IPython.core.completer import (
    CompletionContext,
    SimpleCompletion,
    SimpleMatcherResult,
    context_matcher,  # pyright: ignore[reportUnknownVariableType]
    cursor_to_position,
)
from IPython.core.error import UsageError
from IPython.core.magic import no_var_expand
from IPython.utils.tokenutil import token_at_cursor

from ..kernel.debug.asking import ask_by
from ..kernel.debug.sitting import select_with
from ..kernel.mesh import Mesh
from ..kernel.ranks.shell import QuietShell
from ..runtime import session as sessions
from ..runtime.errors import mark
from ..widgets.flushes import flush_what_waits
from . import tracebacks
from .asker import NotebookAsker
from .auto import is_for_ranks, local_part
from .book import Book
from .called_actors import CalledActors
from .complete import EXPR, World, body_line, complete
from .debug_there import debug_there
from .grammar import ON_MESH, parse_on_mesh
from .hearings import Hearings
from .history import RUNNER, remember_as_call
from .mesh import MeshMagic
from .on_mesh import OnMesh
from .options import GrammarError, HelpRequested
from .panel import Panel
from .running_cell import is_kept
from .selection import selection
from .subshells import SubshellStop
from .terms import SelectorError

_CELL = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*%%on_mesh(?![\w?])")


class Extension:
    """What one shell was given; `unload` takes all of it back."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self.book = Book(variable=lambda name: shell.user_ns.get(name))
        self.on_mesh = OnMesh(shell, self.book)
        self.mesh = MeshMagic(shell, self.book, self.on_mesh)
        self.hearings = Hearings(shell)
        self.called_actors = CalledActors(shell, self.book)
        self.panel = Panel(shell, self.book)
        self.subshells = SubshellStop(shell)
        self._matcher = self._make_matcher()
        self._undoing = ExitStack()

    def load(self) -> None:
        """Give the shell everything, each with how it is taken back."""
        shell, later = self._shell, self._undoing.callback
        later(self.mesh.consoles.close)
        later(self.mesh.dashboards.close)
        later(self._take_down)
        shell.builtin_trap.auto_builtins[RUNNER] = self.on_mesh.run_async
        later(shell.builtin_trap.auto_builtins.pop, RUNNER, None)
        later(remember_as_call(shell.history_manager))
        self._add_magic("line", "mesh", self.mesh.line)
        self._add_magic("line", "on_mesh", self._on_mesh_line)
        self._add_magic("cell", "on_mesh", self._on_mesh_cell)
        self._add_magic("line", "%on_mesh", _below_code)  # what IPython takes `%%on_mesh` in a later line for
        later(flush_what_waits(shell.display_pub))
        shell.debugger = debug_there(shell.debugger, self.book, self.mesh.line)
        later(delattr, shell, "debugger")  # the shell's own is that of its class
        ask_by(lambda: NotebookAsker(shell))
        later(ask_by, None)
        select_with(lambda mesh, text: selection(text, mesh))
        later(select_with, None)
        self._add(mark, tracebacks.mark)
        self._add(tracebacks.hint_of, self.book.hint_of)
        later(self.mesh.watches.stop)
        for part in (self.hearings, self.called_actors, self.panel, self.subshells):
            part.load()
            later(part.unload)
        self.on_mesh.on_send = self.panel.expect
        self._add(shell.Completer.custom_matchers, self._matcher)
        self._add(shell.input_transformers_cleanup, self.transform)

    def _add_magic(self, kind: str, name: str, function: Callable[..., object]) -> None:
        self._shell.register_magic_function(function, kind, name)
        self._undoing.callback(self._shell.magics_manager.magics[kind].pop, name, None)

    def _add(self, those: list[Any], one: Any) -> None:
        those.append(one)
        self._undoing.callback(those.remove, one)

    def unload(self) -> None:
        """Take every mesh down and remove the magics; what fails is raised when all the rest is done."""
        self._undoing.close()

    def _take_down(self) -> None:
        if self.book.meshes:
            print(f"taken down: {', '.join(self.book.meshes)}")
        with ExitStack() as end:
            for name in reversed(list(self.book.meshes)):
                end.callback(self.book.remove(name).down)

    def transform(self, lines: list[str]) -> list[str]:
        """Turn a `%%on_mesh` cell into a top-level `await`; comments above it do not hinder.

        In a terminal, without autoawait and inside another cell (`%%time`, `%run x.ipynb`, `%rerun`) it stays a cell
        magic, which blocks.
        """
        text = "".join(lines)
        found = _CELL.match(text)
        if found is None:
            return self._placed(text, lines)
        line, _, body = text[found.end() :].partition("\n")
        if line.rstrip().endswith("?"):
            return lines
        if self._is_awaitable():
            return [f"await {RUNNER}({line!r}, {body!r})\n"]
        if not body.strip():
            return [f"%on_mesh{line}\n"]  # `%%on_mesh -h`: IPython refuses a cell magic without a body
        return [f"%%on_mesh{line}\n", *body.splitlines(keepends=True)]

    def _placed(self, text: str, lines: list[str]) -> list[str]:
        """A cell without `%%on_mesh`: its place is here, unless `%mesh auto` is on."""
        if (here := local_part(text)) is not None and "local" not in self._shell.magics_manager.magics["cell"]:
            return here.splitlines(keepends=True)
        if not (self.book.is_auto and is_for_ranks(text) and self._is_typed(text)):
            return lines
        return [f"await {RUNNER}('', {text!r})\n"] if self._is_awaitable() else ["%%on_mesh\n", *lines]

    def _is_typed(self, text: str) -> bool:
        """Is this a cell that the user runs? Not what a front-end asks in silence, nor what a cell runs by a magic."""
        if not hasattr(self._shell, "kernel"):
            return True
        request = self._shell.kernel.get_parent("shell").get("content", {})
        return is_kept(request) and request.get("code", "").split() == text.split()  # white space was put in order

    # Else a console asks whether the first line is a whole cell, and hears that an `await` is.
    transform.has_side_effects = True  # pyright: ignore[reportFunctionMemberAccess]

    def _is_awaitable(self) -> bool:
        return bool(self._shell.autoawait) and hasattr(self._shell, "kernel") and not _is_inside_cell()

    @no_var_expand
    def _on_mesh_line(self, line: str) -> object:
        """Run an expression on the mesh: `%on_mesh [SELECTOR] [options] -- EXPR`; returns the result."""
        # Only what stands before the expression is expanded: in it, `{rank}` is a set.
        expr = EXPR.search(line)
        end = expr.start() if expr else len(line)
        caller = 2  # frames above this one: IPython's, then the user's
        return self.on_mesh.run(self._shell.var_expand(line[:end], depth=caller) + line[end:], "")

    def _on_mesh_cell(self, line: str, cell: str) -> object:
        return self.on_mesh.run(line, cell)

    # What `%%on_mesh?` shows.
    _on_mesh_cell.__doc__ = ON_MESH.help()

    def _make_matcher(self) -> Any:
        @context_matcher(identifier="meshbook")  # pyright: ignore[reportUntypedFunctionDecorator]
        def match(context: CompletionContext) -> SimpleMatcherResult:
            place = cursor_to_position(context.full_text, context.cursor_line, context.cursor_position)
            text, cursor = self.as_run(context.full_text, place)
            found = complete(text, cursor, self._world(body_line(text, cursor)))
            if found is None:
                return SimpleMatcherResult(completions=[], suppress=False)
            fragment = text[found.start : cursor]
            items = [SimpleCompletion(text=item, type="mesh") for item in found.items]
            return SimpleMatcherResult(completions=items, matched_fragment=fragment, suppress=True, ordered=True)

        return match

    def as_run(self, text: str, cursor: int) -> tuple[str, int]:
        """A cell and the cursor in it, with the `%%on_mesh` that `%mesh auto` puts above."""
        if _CELL.match(text) or not (self.book.is_auto and is_for_ranks(text)):
            return text, cursor
        return f"%%on_mesh\n{text}", cursor + len("%%on_mesh\n")

    def selected(self, line: str) -> tuple[Mesh, list[int]] | None:
        """The mesh that a line of `%%on_mesh` means, and the living ranks that it selects, if there are some."""
        try:
            args = parse_on_mesh(line)
            mesh = self.book.meshes.get(args.mesh or self.book.current or "")
            if mesh is None or mesh.is_down:
                return None
            alive = mesh.roster.alive()
            ranks = [rank for rank in self.book.select(args.selector, mesh) if rank in alive]
        except (GrammarError, SelectorError, HelpRequested):
            return None
        return (mesh, ranks) if ranks else None

    def _world(self, line: str | None) -> World:
        """What Tab knows; names are those of the ranks that this line of `%%on_mesh` selects, else of all."""
        mesh = self.book.meshes.get(self.book.current or "")
        if mesh is None or mesh.is_down:
            return World(tuple(self.book.meshes))
        owner, ranks = (self.selected(line) if line is not None else None) or (mesh, mesh.roster.alive())

        def names(prefix: str) -> list[str]:
            return owner.completions(prefix, ranks) if ranks else []

        return World(tuple(self.book.meshes), mesh.axes, mesh.states(), names)


def _below_code(line: str) -> None:
    raise UsageError("`%%on_mesh` must be the first line of its cell: put what stands above it into a cell of its own")


def _is_inside_cell() -> bool:
    """Whether a cell runs this one now: by a cell magic, which compiles without top-level await, or by `run_cell`.

    The notebook's own cells are run by another function where they await.
    """
    frame = inspection.currentframe()
    while frame is not None:
        if frame.f_code.co_name in ("run_cell_magic", "run_cell"):
            return True
        frame = frame.f_back
    return False


def inspect(shell: Any, code: str, cursor: int) -> str:
    """What the name at the cursor of a `%%on_mesh` cell stands for, on the first rank of the cell that knows it.

    Empty where the cursor is in no such cell, the name is not known there, or no rank answers at once.
    """
    extension = _loaded.get(id(shell))
    if extension is None:
        return ""
    code, cursor = extension.as_run(code, cursor)
    line = body_line(code, cursor)
    if line is None:
        return ""
    found = extension.selected(line)
    name = token_at_cursor(code, cursor)
    if found is None or not name:
        return ""
    mesh, ranks = found
    told = mesh.inspect(name, ranks)
    return f"{told[1]}\nRank: {told[0]}" if told is not None else ""


def panel(shell: Any) -> Panel | None:
    """The debugger panel of a shell's notebook; none before the extension is loaded."""
    extension = _loaded.get(id(shell))
    return extension.panel if extension is not None else None


_loaded: dict[int, Extension] = {}


def load(shell: Any) -> None:
    """Load into a shell; a second time changes nothing. Raises `UsageError` on a rank, as it would ask for itself."""
    if isinstance(shell, QuietShell):
        raise UsageError("meshbook is loaded in the notebook, not on its ranks: `%load_ext meshbook` in a plain cell")
    if id(shell) not in _loaded:
        _loaded[id(shell)] = Extension(shell)
        _loaded[id(shell)].load()


def unload(shell: Any) -> None:
    """Take the meshes down and the magics out."""
    extension = _loaded.pop(id(shell), None)
    if extension is not None:
        try:
            extension.unload()
        finally:
            sessions.close()
