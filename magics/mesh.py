"""`%mesh`: bring meshes up, look at them, move values, take them down."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError

from ..kernel.failures.interrupted import Interrupted
from ..kernel.mesh import PULL_LIMIT, Mesh
from ..kernel.waiting.collectives import MeshLedger
from ..kernel.waiting.profile import Profile
from ..runtime.errors import MeshbookError, MeshError
from ..runtime.ranges import named
from ..runtime.session import session
from ..runtime.system import leftovers
from ..runtime.wire.codec import EncodeError
from ..widgets.actors import ActorList
from ..widgets.inventory import InventoryView
from ..widgets.stacks import StacksView
from ..widgets.stage import NotebookStage
from ..widgets.status import MeshList, Status, banner
from ..widgets.strip import Strip
from . import code, faults, grammar, resize
from .allocate import KeptHosts, device_of, engine_of, kept_text, line_to_attach, not_up
from .auto import switch
from .book import Book
from .breaks import set_break
from .dash import Dashboards
from .debug import Consoles, debug
from .defaults import configure
from .export import export
from .logs import show_logs
from .on_mesh import OnMesh
from .options import GrammarError, HelpRequested
from .pull import gathered, pull
from .running_cell import running_cell
from .terms import SelectorError
from .watch import Watches

_ALONE = re.compile(r"^%?mesh\b(?!\s*[=,:])([^\n]*)\s*\Z", re.MULTILINE)
"""A cell that ends in a line of `%mesh` whose value nobody takes."""


class MeshMagic:
    """The line magic."""

    def __init__(self, shell: Any, book: Book, on_mesh: OnMesh) -> None:
        self._shell = shell
        self._book = book
        self.watches = Watches(shell, book)
        self.dashboards = Dashboards(shell, book)
        self.consoles = Consoles(shell)
        self._line = self._typed = ""
        self._lines: dict[str, str] = {}  # by which meshes were brought up, by their names
        self._commands: dict[type, Callable[[Any], Any]] = {
            grammar.Up: self._up,
            grammar.Ls: self._ls,
            # Also those on meshes that were spawned without %mesh, by the notebook or by its ranks.
            grammar.Actors: lambda _: ActorList(list(session().root.rosters.values())),
            grammar.Use: self._use,
            grammar.Attach: self._attach,
            grammar.Status: self._status,
            grammar.Down: self._down,
            grammar.Restart: lambda args: self._returned(faults.restart(book, args)),
            grammar.Resize: lambda args: self._returned(resize.resize(book, args)),
            grammar.Sync: lambda args: code.sync(book, args),
            grammar.Auto: lambda args: print(switch(book, args)),
            grammar.Autoreload: lambda args: code.autoreload(shell, book, args),
            grammar.Interrupt: lambda args: faults.interrupt(book, args),
            grammar.Unstick: lambda args: faults.unstick(book, args),
            grammar.Dash: self.dashboards.show,
            grammar.Stacks: self._stacks,
            grammar.Profile: self._profile,
            grammar.Debug: lambda args: debug(book, self.consoles, args),
            grammar.Break: lambda args: set_break(book, args, shell.history_manager.input_hist_raw),
            grammar.Ledger: self._ledger,
            grammar.Logs: lambda args: show_logs(book, args, NotebookStage(shell)),
            grammar.Who: self._who,
            grammar.Diff: on_mesh.diff,
            grammar.Watch: self.watches.do,
            grammar.Push: self._push,
            grammar.Pull: self._pull,
            grammar.Export: lambda args: export(book, args),
            grammar.Config: lambda args: configure(book, args),
            grammar.Reap: lambda _: leftovers.reap(),
        }

    def line(self, line: str) -> object:
        try:
            self._line = self._typed = line.strip().removesuffix(";")  # which keeps IPython from showing the value
            command = grammar.parse_mesh(self._typed)
            if command.hint:
                print(command.hint)
            shown = self._commands[type(command.args)](command.args)
            return json.dumps(shown.data()) if command.is_json else shown
        except HelpRequested as asked:
            print(asked.text)
            return None
        except (GrammarError, SelectorError) as mistake:
            raise UsageError(f"{mistake}{self._meant_use()}") from None
        except Interrupted:
            raise
        except KeyboardInterrupt:
            raise Interrupted(f"`%mesh {self._typed}` was stopped") from None

    line.__doc__ = grammar.mesh_help()  # what `%mesh?` shows

    def _meant_use(self) -> str:
        """For who has typed the name of a mesh as a sub-command."""
        name = self._typed.partition("[")[0].strip()
        return f"; `%mesh use {self._typed}` makes that mesh the current one" if name in self._book.meshes else ""

    def _up(self, args: grammar.Up) -> Mesh | None:
        name = args.name or self._book.free_name()
        self._check_free(name)
        axes = dict(args.axes)
        folder = _folder(args.sync, "--sync") or ""
        try:
            engine = engine_of(args, axes, self._shell.user_ns)
        except (ValueError, MeshbookError) as mistake:
            raise UsageError(str(mistake)) from None
        try:
            mesh = self._start(name, axes, args, engine, device_of(name, args, engine), folder)
        except BaseException:
            session().release(session().engine(engine), detach=True)  # what was kept before is not at fault
            raise
        session().note_mesh(engine, name, self._typed)
        if left := self._left_by(self._line):
            print(f"{left} is still up, from this line when it ran before: `%mesh down {left}` ends it")
        self._lines[name] = self._line
        if found := kept_text(engine):
            print(found)
        self._book.add(mesh)
        return self._returned(mesh)

    def _left_by(self, line: str) -> str | None:
        """A mesh that the same line has brought up, and that nobody has taken down."""
        return next((name for name in self._book.up() if self._lines.get(name) == line), None)

    def _attach(self, args: grammar.Attach) -> Mesh | None:
        self._typed, up = line_to_attach(args.name)
        return self._up(up)

    def _check_free(self, name: str) -> None:
        old = self._book.meshes.get(name)
        if old is not None and not old.is_down:
            raise UsageError(
                f"mesh {name!r} is up: `%mesh down {name}` ends it, `%mesh up OTHER ...` starts one beside it"
            )

    def _start(
        self, name: str, axes: Mapping[str, int], args: grammar.Up, engine: str, device: str, folder: str
    ) -> Mesh:
        started = time.perf_counter()
        try:
            if folder:
                print(code.told(session().sync(session().engine(engine), folder)))
            mesh = Mesh.up(
                name,
                axes,
                engine=engine,
                how=args.spawn,
                ready_timeout=args.ready_timeout,
                device=device,
                backend=args.pg,
                link=args.link,
                env=dict(args.env),
                cwd=_folder(args.cwd, "--cwd"),
                folder=folder,
                preload=args.imports,
                path=sys.path,
                spares=args.spares,
            )
        except (MeshbookError, OSError) as error:
            raise not_up(name, error) from None
        mesh.options = args
        seconds = time.perf_counter() - started
        Strip(mesh, NotebookStage(self._shell), lambda: banner(mesh, device, args.pg, seconds)).show()
        if why := mesh.roster.engine.why_not_shared(mesh.roster.specs[0]):
            print(f"each rank imports {', '.join(args.imports)} for itself: {why}")
        return mesh

    def _returned(self, mesh: Mesh) -> Mesh | None:
        """The mesh, but for a line that ends the cell: there the banner has said everything."""
        _, text = running_cell(self._shell)
        alone = _ALONE.search(text)
        return None if alone is not None and alone[1].strip().removesuffix(";") == self._line else mesh

    def _ls(self, args: grammar.Ls) -> MeshList | KeptHosts:
        meshes = MeshList(list(self._book.meshes.values()), self._book.current, self._book.slice)
        return KeptHosts(meshes) if args.all else meshes

    def _use(self, args: grammar.Use) -> Mesh:
        mesh = self._book.use(args.name, args.selector)
        if args.selector:
            ranks = self._book.select("", mesh)
            back = f"`%mesh use {mesh.name}` to all"
            print(f"{mesh.name}[{args.selector}]: cells, push and pull go to {named(ranks)}; {back}")
        return mesh

    def _status(self, args: grammar.Status) -> Status | MeshList:
        if not self._book.meshes and not args.selector:
            return MeshList([], None)
        mesh = self._book.get(args.mesh)
        # Without a selector all of them, also those that are dead: else nobody sees that they are.
        ranks = self._book.select(args.selector, mesh) if args.selector else range(mesh.num_ranks)
        return Status(mesh, ranks)

    def _down(self, args: grammar.Down) -> None:
        names = list(self._book.meshes) if args.all else [self._book.get(args.name).name]
        was_auto = self._book.is_auto
        for name in names:
            mesh = self._book.remove(name)
            ends = mesh.down(args.grace)
            session().release(mesh.roster.engine, detach=args.detach)
            print(f"mesh {name!r} is down: {_ends_text(ends)}")
        if was_auto and not self._book.is_auto:
            print(switch(self._book, grammar.Auto()))

    def _stacks(self, args: grammar.Stacks) -> StacksView:
        mesh = self._book.get(args.mesh)
        ranks = self._book.select(args.selector, mesh) if args.selector else None
        return StacksView(mesh.stacks(ranks, native=args.native, locals_of=args.locals_of))

    def _profile(self, args: grammar.Profile) -> Profile:
        mesh, ranks = self._book.chosen_of_all(args.mesh, args.selector)
        return mesh.profile(args.duration, ranks)

    def _ledger(self, args: grammar.Ledger) -> MeshLedger:
        mesh, ranks = self._book.chosen_of_all(args.mesh, args.selector)
        ledger = mesh.ledger(ranks, last=args.last)
        if not ledger.lines() and mesh.former_ledger is not None:  # who asks now wants to know what went wrong
            ledger = mesh.former_ledger.as_former(ranks, args.last)
        return ledger

    def _who(self, args: grammar.Who) -> InventoryView:
        mesh, ranks = self._book.chosen_of_all(args.mesh, args.selector)
        return InventoryView(mesh.who(ranks))

    def _push(self, args: grammar.Push) -> None:
        mesh, ranks = self._book.chosen(args.mesh, args.sel)
        missing = [name for name in args.names if name not in self._shell.user_ns]
        if missing:
            raise UsageError(f"there is no {missing[0]!r} in the notebook to push: assign it first")
        values = {name: self._shell.user_ns[name] for name in args.names}
        try:
            mesh.push(values, ranks)
        except MeshError as error:
            raise UsageError(str(error)) from None
        except (EncodeError, MeshbookError) as error:
            raise UsageError(f"nothing was pushed: {error}") from None
        print(f"pushed {', '.join(args.names)} to {named(ranks)}")

    def _pull(self, args: grammar.Pull) -> object:
        mesh, ranks = self._book.chosen(args.mesh, args.sel)
        limit = args.max_bytes if args.max_bytes is not None else PULL_LIMIT
        pulled = {name: pull(mesh, name, ranks, limit) for name in args.names}
        values = {name: gathered(name, of_ranks, args.gather) for name, of_ranks in pulled.items()}
        self._shell.user_ns.update(values)
        return next(iter(values.values())) if len(values) == 1 else values


def _folder(name: str | None, option: str) -> str | None:
    if name is None:
        return None
    folder = Path(os.path.expanduser(name))  # Path's own raises for a user that there is not
    if not folder.is_dir():
        raise UsageError(f"{option}: there is no folder {name!r}")
    return str(folder)


def _ends_text(ends: Mapping[int, str]) -> str:
    """Example: `ranks 0-2 exited with code 0; rank 3 killed by SIGKILL (signal 9)`."""
    by_end: dict[str, list[int]] = {}
    for rank, end in sorted(ends.items()):
        by_end.setdefault(end, []).append(rank)
    return "; ".join(f"{named(ranks)} {end}" for end, ranks in by_end.items())
