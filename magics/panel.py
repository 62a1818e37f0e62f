"""JupyterLab's debugger panel on a notebook with meshes: switched on, it covers the notebook and all ranks.

ipykernel hands over what the panel asks and what its own debugger tells (`app.MeshbookKernel`), on the thread of the
control channel, which is free while a cell runs. Nothing is debugged before the panel is switched on.
"""

from __future__ import annotations

import asyncio
import importlib
import linecache
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ..kernel.debug.dap import spare_our_threads
from ..kernel.debug.editors import listen
from ..kernel.debug.framing import Message
from ..kernel.mesh import Mesh
from ..kernel.panel.adapter import AdapterLost
from ..kernel.panel.session import Own, Session
from ..runtime.ranges import named
from ..runtime.ranks.place import coordinates
from .book import Book

_WAIT = 15.0
"""Seconds that a cell waits at most until the ranks of new meshes are debugged."""

_MOST_CELLS = 256
"""Cells whose text is kept, to know in which file of the panel's they are."""

Key = tuple[str, int]
"""A rank by the name of its mesh and its process: what was tried once is not tried again."""


def missing(kernel: type[Any]) -> str:
    """What this ipykernel lacks of what the panel needs of it, in words; empty where it has all."""
    needed = [
        f"IPythonKernel.{name}" for name in ("do_debug_request", "_publish_debug_event") if not hasattr(kernel, name)
    ]
    if not hasattr(importlib.import_module("ipykernel.compiler"), "get_file_name"):
        needed.append("compiler.get_file_name")
    version = importlib.import_module("ipykernel").__version__
    return f"the debugger panel shows no ranks: ipykernel {version} has no {', no '.join(needed)}" if needed else ""


@dataclass(slots=True)
class _Rank:
    """A rank, for the session that debugs it. Its number is looked up, as a resize may change it."""

    mesh: Mesh
    pid: int
    book: Book
    _held: int | None = None

    @property
    def rank(self) -> int:
        return next((rank for rank, state in self.mesh.roster.states.items() if state.pid == self.pid), -1)

    @property
    def label(self) -> str:
        return f"rank {self.rank}" if len(self.book.meshes) == 1 else f"{self.mesh.name} rank {self.rank}"

    @property
    def title(self) -> str:
        return f"{self.label} · {_point(self.mesh, self.rank)}"

    def is_busy(self) -> bool:
        state = self.mesh.roster.states.get(self.rank)
        return state is not None and state.name == "busy"

    def hold(self, is_held: bool) -> None:
        if self._held is not None:
            self.mesh.desk.held -= {self._held}
        self._held = self.rank if is_held else None
        if self._held is not None:
            self.mesh.desk.held |= {self._held}


class Panel:
    """The panel of one notebook. Requests come on one thread, with its event loop; cells begin on others."""

    def __init__(self, shell: Any, book: Book) -> None:
        self._shell, self._book = shell, book
        self._raw = ""
        self._sent: dict[str, str] = {}  # by the name of a cell that ran on ranks: its text as the notebook has it
        self._session: Session | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._joining = asyncio.Lock()
        self._tried: set[Key] = set()
        self._background: set[asyncio.Task[None]] = set()
        self._notes: list[str] = []

    def load(self) -> None:
        self._shell.events.register("pre_run_cell", self._on_cell)

    def unload(self) -> None:
        """Let all ranks go on, and debug none any more."""
        self._shell.events.unregister("pre_run_cell", self._on_cell)
        if self._loop is not None and self._session is not None:
            asyncio.run_coroutine_threadsafe(self._session.leave(), self._loop).result(_WAIT)
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    @property
    def is_on(self) -> bool:
        return self._session is not None and self._session.is_on

    # On the thread of the control channel.

    async def request(self, request: Message, own: Own, publish: Callable[[Message], object]) -> Message:
        """Answer what the panel asks. `own` asks ipykernel's debugger, `publish` tells the panel something."""
        if self._session is None:
            self._session, self._loop = Session(own, publish), asyncio.get_running_loop()
        if request["command"] == "initialize":
            spare_our_threads()
            self._tried.clear()
        told = await self._session.request(request)
        if request["command"] == "attach" and self.is_on:
            task = asyncio.create_task(self._join())
            self._background.add(task)
            task.add_done_callback(self._background.discard)
        return told

    def hear(self, event: Message) -> bool:
        """ipykernel's own debugger has told something; whether the session tells the panel of it."""
        if self._session is None:
            return False
        self._session.own_event(event)
        return True

    async def _join(self) -> None:
        """Debug the ranks that are not yet."""
        async with self._joining:
            for mesh in list(self._book.meshes.values()):
                if not mesh.is_down and (new := self._new(mesh)):
                    await self._join_ranks(mesh, new)

    def _new(self, mesh: Mesh) -> dict[int, int]:
        """The ranks of a mesh that live and are new, with their processes."""
        pids = {rank: mesh.roster.states[rank].pid for rank in mesh.roster.alive()}
        return {rank: pid for rank, pid in pids.items() if (mesh.name, pid) not in self._tried}

    async def _join_ranks(self, mesh: Mesh, new: dict[int, int]) -> None:
        assert self._session is not None
        session, places = self._session, self._places()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "meshbook-panel", initializer=spare_our_threads)
        sockets, without = await asyncio.get_running_loop().run_in_executor(
            self._pool, listen, mesh, sorted(new), places
        )
        added = await asyncio.gather(
            *(session.add(path, _Rank(mesh, new[rank], self._book)) for rank, path in sockets.items()),
            return_exceptions=True,
        )
        for rank, outcome in zip(sockets, added, strict=True):
            if isinstance(outcome, OSError | AdapterLost):
                without[rank] = f"cannot be reached: {outcome or type(outcome).__name__}"
            elif isinstance(outcome, BaseException):
                raise outcome
        self._tried |= {(mesh.name, pid) for pid in new.values()}
        for why in sorted(set(without.values())):
            ranks = [rank for rank in sorted(without) if without[rank] == why]
            self.note(f"the debugger panel does not show {named(ranks)} of mesh {mesh.name}: {why}")

    def _places(self) -> dict[str, str]:
        """In which files the panel has cells that have run, by their names."""
        found: dict[str, str] = {}
        for file in list(linecache.cache):
            label = self._shell.compile.format_code_name(file)
            if label is not None:
                found[f"cell {label[1].removeprefix('In[').removesuffix(']')}"] = file
        return found | {name: _file_of(raw) for name, raw in self._sent.items()}

    def note(self, line: str) -> None:
        """Say this in the next cell."""
        self._notes.append(line)

    # On the thread that runs a cell.

    def _on_cell(self, info: Any) -> None:
        self._raw = info.raw_cell or ""
        if self.is_on:
            self._be_ready()
        while self._notes:
            print(self._notes.pop(0), file=sys.stderr)

    def expect(self, mesh: Mesh, ranks: Sequence[int], name: str) -> None:
        """The cell that runs is about to be sent to these ranks under this name."""
        self._sent.pop(name, None)
        self._sent[name] = self._raw
        if len(self._sent) > _MOST_CELLS:
            del self._sent[next(iter(self._sent))]
        if self.is_on:
            self._be_ready()
            mesh.tell_debugger(ranks, "place", {name: _file_of(self._raw)})

    def _be_ready(self) -> None:
        """Wait until all ranks are debugged, with the breakpoints that are set."""
        spare_our_threads()
        assert self._loop is not None
        try:
            asyncio.run_coroutine_threadsafe(self._join(), self._loop).result(_WAIT)
        except TimeoutError:
            self.note("the debugger panel does not show all ranks yet: they answer slowly")


def _file_of(raw: str) -> str:
    """The file that the panel knows a cell by."""
    return importlib.import_module("ipykernel.compiler").get_file_name(raw)


def _point(mesh: Mesh, rank: int) -> str:
    return ",".join(f"{axis}={index}" for axis, index in coordinates(rank, mesh.axes).items())
