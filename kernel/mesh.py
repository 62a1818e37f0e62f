"""A mesh as a notebook has it: ranks with the kernel actor on each, to run cells on all or on some of them."""

from __future__ import annotations

import itertools
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from ..runtime import session as sessions
from ..runtime.actor import Actor
from ..runtime.controller.gather import Gather
from ..runtime.controller.spares import keep_spares
from ..runtime.engines.base import Exit
from ..runtime.errors import checks_for_caller
from ..runtime.mesh import ProcMesh, actor_number
from ..runtime.orders import Order
from ..runtime.shape import Selector
from ..runtime.values import ValueMesh
from ..runtime.wire.codec import EncodeError, encode
from ..runtime.wire.deferred import untorn
from . import zygote
from .debug.desk import Desk
from .debug.points import Points
from .event import MOST as MOST_EVENTS
from .event import Event
from .execute import execute
from .lent import Lent
from .pushes import not_taken, takers
from .ranks.agent import KernelActor
from .ranks.behind import NOTHING, Behind
from .ranks.comms import CommMessage
from .ranks.guest import cells_among, pack
from .recovery.repairs import Repairs
from .run import Run
from .sources.journal import Journal, Replay
from .sources.sent import Sent
from .sources.source import Sources, file_of
from .stopping.busy import wait_for
from .values.diff import compare
from .values.difference import Comparison
from .values.measure import Tolerance

if TYPE_CHECKING:
    from ..runtime.engines.courier import Delivery
    from ..runtime.tensors.tensor import Tensor

A = TypeVar("A", bound=Actor)

PULL_LIMIT = 100 << 20
"""Bytes that `pull` brings from one rank without being asked for more by number."""

MEASURED = 1 << 30
"""Bytes of differing values that `compare` measures without being asked for more by number."""

_HEARD_RUNS = 64
"""Runs that show what their ranks print after the end: as each holds all its values, older ones only log it."""

zygote.prepare()


class Mesh(Repairs):
    """A named mesh of ranks that run cells.

    Ranks are numbered row-major over its `axes`.

    Example:
        >>> with Mesh.up("m", {"dp": 2}) as mesh:
        ...     run = mesh.run("rank * 10")
        ...     sorted(run.finished.get().progress.outcomes)
        [0, 1]
    """

    def __init__(self, name: str, procs: ProcMesh) -> None:
        self.name = name
        self.procs = procs
        self.roster = procs.roster
        self.options: Any = None
        """What brought it up, kept by who did, to bring it up again."""
        self.roster.name = name
        self.is_reloading = False
        """Do its ranks renew modules whose files have changed before each cell? See `autoreload`."""
        self.last_failed: tuple[int, ...] = ()
        """The ranks on which the last cell failed: what `@failed` selects."""
        self.desk = Desk()
        """Which of its ranks are stopped in the debugger."""
        self._kernel: Any = procs.spawn("kernel", KernelActor, self.desk.port)
        self.desk.serve(self)
        self.points = Points(self)
        """Breakpoints that were set from the notebook."""
        self._actor = actor_number(self._kernel)
        self._lent = Lent(self)
        self._sent = Sent()
        self._cells = itertools.count(1)
        self.last_cell = 0
        """The number of the run that was sent last."""
        self.journal = Journal()
        self.shown_by_name: dict[tuple[int, str], Any] = {}
        """Where the front-end has what ranks have shown under names of theirs: a later cell may update it."""
        self._heard: deque[Run] = deque()  # the oldest first
        self._unfinished: set[Run] = set()  # and those that have ended since the last cell was sent
        self.cells: dict[int, str] = {}
        """The name of the cell of each call that ran one: what stands in the logs under its number."""
        self.sources = Sources()
        self._files: dict[str, str] = {}
        self._sending = threading.Lock()  # a source must be on the wire before a run that refers to it

    @classmethod
    def up(
        cls,
        name: str,
        axes: Mapping[str, int],
        *,
        engine: str = "local",
        how: str = "auto",
        ready_timeout: float | None = 60.0,
        spares: int = 0,
        **options: Any,
    ) -> Mesh:
        """Start the ranks of a mesh and wait until all are ready.

        `spares` processes are kept warm beside them, to take the places of ranks that die (`heal`).
        `options` are those of `session.specs_for`: `device`, `backend`, `env`, `cwd`, `preload`, `path`, `folder`.

        Raises:
            SpawnError: a rank did not come up; the others are ended.
        """
        procs = sessions.spawn_procs(axes, engine, how, **options)
        try:
            procs.roster.wait_ready(ready_timeout)
            mesh = cls(name, procs)
            mesh._kernel.initialized.get(ready_timeout)
            keep_spares(mesh.roster, spares)
        except BaseException:
            procs.roster.stop(grace=0)
            raise
        return mesh

    @property
    def python(self) -> str:
        """The path of the Python its ranks run in, where that is not the notebook's own."""
        return self.roster.specs[0].python

    @property
    def num_ranks(self) -> int:
        return len(self.roster.states)

    @checks_for_caller
    def run(
        self,
        source: str,
        ranks: Sequence[int] | None = None,
        *,
        name: str = "",
        first_line: int = 1,
        replay: Replay | None = None,
        keep: bool = False,
        is_inquiry: bool = False,
    ) -> Run:
        """Send a cell to these ranks (default: all that live); returns at once.

        Tracebacks name it by `name`, and count its lines from `first_line`. With `replay` it is a cell of old, run on
        ranks that come new. With `keep`, the ranks hold its value for `compare` until the next cell. An inquiry is
        not in the journal: a rank that comes new does not need it, nor does a script; what failed before stays.

        Raises:
            MeshStopped: the mesh was taken down.
        """
        self._check_up()
        mended = self.make_groups_sure()
        chosen = tuple(self._chosen(ranks))
        if not isinstance(cast("object", source), str):
            raise TypeError(f"a cell is a text, and {source!r} is none: `execute` takes functions")
        self.last_cell = cell = next(self._cells)
        is_new = replay is None and not is_inquiry
        behind = self._behind(chosen) if is_new else NOTHING
        run = Run(self.roster, self.axes, chosen, cell, name or f"cell {cell}", mended)
        if is_new:
            self.points.follow(run.name, source, first_line)
        self.sources.add(run.name, source, first_line)
        members = chosen if replay is None else replay.ranks
        group = members if len(members) < self.num_ranks else ()
        how = (group, self._has_store(chosen), keep, self.is_reloading, tuple(behind), is_inquiry)
        try:
            self._send_source(run, source, first_line, how)
            if is_new:
                self._note(run, source, first_line)
        except KeyboardInterrupt:
            self.stop(run)
            raise
        return run

    def _send_source(self, run: Run, source: str, first_line: int, how: tuple[Any, ...]) -> None:
        """What says how is plain, as what is not takes ten times as long to encode."""
        with self._sending:
            kept = [self.roster.states[rank].keeps for rank in run.ranks]
            key, text = self._sent.key_of(source, kept)
            self._post(run, self._order("run", run.cell, key, text, run.name, first_line, *how))
            self._sent.note(key, kept)
            self.cells[run.call] = run.name
            for outdated in self._sent.outdated(state.keeps for state in self.roster.states.values()):
                self.send_ahead(self.roster.alive(), "forget", (outdated,))

    def _has_store(self, chosen: Sequence[int]) -> bool:
        """Can process groups be made now? Who asks a store whose rank is stopped waits for it, and hears nothing.

        A cell that runs on that rank waits for it anyway.
        """
        if self.roster.groups.store_rank in chosen:
            return True
        stat = self.roster.crew.stats([self.roster.groups.store_rank]).get(self.roster.groups.store_rank)
        return stat is None or stat.state not in "Tt"

    @checks_for_caller
    def execute(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> ValueMesh[Any]:
        """Call a function on all ranks, wait, and return what each gave.

        A function of the notebook travels by value, with the names of the notebook that it uses; all others it finds
        where cells run, and what it makes `global` stays there for cells and later functions (see `guest.Guests`).
        `rank`, `device`, `mesh`, `group` are the rank's own. An `async` function is awaited. The rules are those of a
        cell: if a rank raises, the others have 2 s; Ctrl-C interrupts the ranks.

        Raises:
            DeviceMeshError: the mesh has lost ranks, now or before: then nothing was run. `heal_mesh` brings them back.
            MeshError: it raised on some ranks; `by_rank` has the exceptions.
            EncodeError: the function or an argument cannot be pickled; nothing was run.
            MeshStopped: the mesh was taken down.

        Example:
            >>> with Mesh.up("m", {"dp": 2}, backend="none") as mesh:
            ...     mesh.execute(pow, 2, 10).values()
            [1024, 1024]
        """
        self._check_up()
        if not callable(cast("object", function)):
            raise TypeError(f"execute takes a function and its arguments, not {function!r}")
        return execute(self, function, args, kwargs)

    def submit(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], before: Callable[[], object]
    ) -> Run:
        """Send a call of a function to all ranks; returns at once. Its outcomes hold the values, however large.

        A press of Ctrl-C is one for the ranks from `before` on: it is called when nothing but the sending is left.
        Raises `EncodeError`, `MeshStopped`.
        """
        self._check_up()
        packed = pack(function, args, kwargs)
        lines = [(file, self._file_on_ranks(file, name, text), text) for file, name, text in cells_among(packed.files)]
        self.last_cell = next(self._cells)
        name = getattr(function, "__name__", "a function")
        behind = self._behind(range(self.num_ranks))
        run = Run(self.roster, self.axes, range(self.num_ranks), self.last_cell, name, self.make_groups_sure())
        buffers = [pickle.PickleBuffer(each) for each in packed.buffers]
        order = self._order("execute", run.cell, packed.head, buffers, lines, tuple(behind))
        before()
        self._post(run, order)
        self._note(run, "", 1, f"{name}()")
        return run

    @untorn
    def _post(self, run: Run, order: Order) -> None:
        """To all of its ranks, or none."""
        run.call = self.roster.call(run.ranks, order, run, audience=run)
        self._hear(run)

    def _file_on_ranks(self, file: str, name: str, text: str) -> str:
        """The name under which ranks know a cell of the notebook itself, for `where` and tracebacks."""
        if file not in self._files:
            self._files[file] = file_of(name, text)
            self.sources.add(name, text, 1)
        return self._files[file]

    def _note(self, run: Run, source: str, first_line: int, name: str = "") -> None:
        """Keep the cell for ranks that come later, and whether it did well."""
        entry = self.journal.note(name or run.name, source, first_line, run.ranks)
        entry.is_running = True

        def end(_: object) -> None:
            entry.failed.update(run.progress.failed, run.progress.lost)
            entry.is_running = False

        run.finished.add_done_callback(end)

    def _behind(self, ranks: Sequence[int]) -> Behind:
        """The last cell that still runs on one of these ranks; none that the user has stopped, to go on."""
        for run in list(self._unfinished):
            if run.finished.done() and not run.is_driven:
                self._unfinished.discard(run)
        open_ones = [run for run in list(self._unfinished) if not run.progress.stopped]
        before = [run for run in open_ones if not set(ranks).isdisjoint(run.ranks)]
        last = max(before, key=lambda run: run.cell, default=None)
        return Behind(last.cell, last.name) if last is not None else NOTHING

    def _hear(self, run: Run) -> None:
        self._heard.append(run)
        self._unfinished.add(run)
        for _ in range(len(self._heard) - _HEARD_RUNS):
            oldest = self._heard.popleft()
            if oldest.finished.done():
                self.roster.forget_audience(oldest.call)
            else:
                self._heard.append(oldest)

    def tell_widget(self, rank: int, message: CommMessage, run: Run) -> None:
        """Pass on what the browser says to a widget that `run` has made, and hear what its callbacks print."""
        if not self.is_down:
            run.events.append(self.roster.call([rank], self._order("heed", message), Event(run), run))
            if len(run.events) > MOST_EVENTS:
                self.roster.forget_audience(run.events.popleft())

    def compare(self, run: Run, tolerance: Tolerance = Tolerance(), max_bytes: int = MEASURED) -> Comparison:  # noqa: B008
        """Which ranks differ in the value of a run that was told to `keep` it, and in what; the value is dropped then.

        Of a model or an optimizer, parameter by parameter. No more than `max_bytes` of what differs are measured.

        Example:
            >>> with Mesh.up("m", {"dp": 2}) as mesh:
            ...     run = mesh.run("{'lr': 0.1, 'seed': rank}", keep=True).finished.get()
            ...     print(mesh.compare(run))
            ranks 0-1 all differ   dict, 1 of 2 leaves differ
            ≠ seed  0  rank 1  1 instead of 0, by 1 (1 relative)
        """
        self._check_up()

        def call(ranks: Sequence[int], step: str, /, *args: object) -> dict[int, Any]:
            return self._call(ranks, "compare", run.cell, step, *args)

        try:
            return compare(call, run.ranks, tolerance, max_bytes)
        finally:
            if not self.is_down:
                alive = [rank for rank in run.ranks if rank in self.roster.alive()]
                self.roster.call(alive, self._order("compare", run.cell, "drop"), None)

    @checks_for_caller
    def push(self, names: Mapping[str, object], ranks: Sequence[int] | None = None) -> None:
        """Put values into the namespace of these ranks (default: all that live).

        Raises:
            EncodeError: a value cannot be pickled; nothing was sent.
            DeviceMeshError: ranks have died before they had it; they get it when they are back, the others have it.
            MeshError: a rank cannot read it; the others have it.
        """
        self._check_up()
        if not isinstance(cast("object", names), Mapping):
            raise TypeError(f"push takes names with their values, such as {{'lr': 0.1}}, not {names!r}")
        chosen = tuple(self._chosen(ranks))
        try:
            gather = self._begin(chosen, "push", dict(names))
        except EncodeError:
            _blame(names)
            raise
        try:
            wait_for(self, gather, "push", "they get it when they are done")
        finally:  # also where the user does not wait
            if taking := takers(chosen, gather.errors):
                self.journal.note_push(names, taking)
        if gather.errors:
            raise not_taken(names, chosen, gather.errors)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"mesh {self.name!r} stays in the notebook: code on a rank is on the mesh, and knows its `rank`"
        )

    def give(self, names: Mapping[str, object], ranks: Sequence[int]) -> Gather:
        """`push` that does not wait for the ranks, nor keep the values for those that come later."""
        return self._begin(ranks, "push", dict(names))

    @checks_for_caller
    def pull(self, name: str, ranks: Sequence[int] | None = None, max_bytes: int = PULL_LIMIT) -> dict[int, Any]:
        """The value of `name` on each of these ranks. Large arrays arrive as views of shared memory, writable, private.

        Raises:
            NameError: it is not defined on a rank.
            ValueError: it is larger than `max_bytes` on a rank.
            TypeError: `name` is no text.
        """
        self._check_up()
        if not isinstance(cast("object", name), str):
            raise TypeError(f"pull takes the name of one variable, not {name!r}: pull('x')")
        return self._call(self._chosen(ranks), "pull", name, max_bytes)

    @property
    def folder(self) -> str:
        """The folder that is brought to its hosts; empty where none is."""
        return self.roster.specs[0].folder

    def sync(self) -> Delivery:
        """Bring the folder that this mesh was given to its hosts, as it is now.

        Raises what `Session.sync` does, and `ValueError` where it was given none.
        """
        self._check_up()
        if not self.folder:
            raise ValueError(f"mesh {self.name!r} has no folder of its own: `%mesh up ... --sync DIR` gives it one")
        return sessions.session().sync(self.roster.engine, self.folder)

    def autoreload(self, is_on: bool = True) -> None:
        """Let ranks renew modules whose files have changed before each cell (IPython's `%autoreload 2`), or no more.

        Ranks that are idle look at the files now: what changes from here on is renewed.
        """
        self._check_up()
        if is_on != self.is_reloading:
            self.is_reloading = is_on
            busy = {rank for run in self.running() for rank in run.owing}
            self._call([rank for rank in self.roster.alive() if rank not in busy], "autoreload", is_on)

    @checks_for_caller
    def spawn(self, name: str, Class: type[A], *args: Any, **kwargs: Any) -> A:
        """Make actors of your own on the ranks, beside the one that runs cells."""
        self._check_up()
        return self.procs.spawn(name, Class, *args, **kwargs)

    def slice(self, **selectors: Selector) -> ProcMesh:
        """Part of the processes, to spawn actors on: `m.slice(dp=0).spawn("name", Class)`. See `ProcMesh.slice`."""
        return self.procs.slice(**selectors)

    def split(self, **changes: int | Sequence[str]) -> ProcMesh:
        """The processes with an axis split into several: `m.split(rank=("dp", "tp"), tp=2)`."""
        return self.procs.split(**changes)

    def flatten(self, name: str) -> ProcMesh:
        """The processes along one axis."""
        return self.procs.flatten(name)

    def rename(self, **names: str) -> ProcMesh:
        """The processes with axes of other names."""
        return self.procs.rename(**names)

    def activate(self) -> AbstractContextManager[object]:
        """Torch makes distributed tensors, from now on or inside of the `with` block: see `ProcMesh.activate`."""
        self._check_up()
        return self.procs.activate()

    def rank_tensor(self, dim: str | Sequence[str]) -> Tensor:
        """A distributed number, the index of each rank on an axis: see `ProcMesh.rank_tensor`."""
        self._check_up()
        return self.procs.rank_tensor(dim)

    def running(self) -> list[Run]:
        """The cells that are under way."""
        return [run for run in list(self._heard) if not run.finished.done()]

    def down(self, grace: float = 2.0) -> dict[int, str]:
        """Take the mesh down; how each rank ended, and why it was killed where that was our doing."""
        self.roster.groups.await_rest(grace)  # as for a cell that has ended: no rank is killed in the midst of that
        late = f"not having left within {grace:g} s"
        states = self.roster.states
        why = {rank: "in the midst of a cell" if states[rank].main_calls else late for rank in self.roster.alive()}
        ends = self.roster.stop(grace)
        killed = str(Exit(signum=signal.SIGKILL))
        return {rank: f"{end}, {why[rank]}" if end == killed and rank in why else end for rank, end in ends.items()}

    def __enter__(self) -> Mesh:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def __len__(self) -> int:
        return self.num_ranks

    def __repr__(self) -> str:
        axes = " ".join(f"{axis}={size}" for axis, size in self.axes.items())
        return f"<Mesh {self.name} {axes}{', down' if self.is_down else ''}>"

    def _call(self, ranks: Sequence[int], endpoint: str, *args: Any) -> dict[int, Any]:
        """Call an endpoint of the kernel actors of any ranks; raises what the first of them failed with."""
        gather = self._begin(ranks, endpoint, *args)
        try:
            wait_for(self, gather, endpoint)
        except KeyboardInterrupt:  # nobody wants the answer: what takes long is ended, what has not begun never does
            self.interrupt(gather.owing, gather.call, timeout=0.2)
            raise
        for rank in ranks:
            if rank in gather.errors:
                raise gather.errors[rank]
        return {rank: gather.answers[rank] for rank in ranks}

    def _begin(self, ranks: Sequence[int], endpoint: str, *args: Any) -> Gather:
        gather = Gather(self.roster, ranks, f"{self.name}.{endpoint}")
        gather.call = self.roster.call(ranks, self._order(endpoint, *args), gather)
        return gather


def _blame(names: Mapping[str, object]) -> None:
    """Raise `EncodeError` for the first of these values that cannot be pickled, by its name."""
    for name, value in names.items():
        try:
            encode(value)
        except EncodeError as error:
            raise EncodeError(f"{name}: {error}") from None
