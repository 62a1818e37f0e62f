"""The actor that runs cells: one lives on every rank of a mesh that a notebook brought up."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec

from ...runtime.actor import Actor, control_endpoint, endpoint
from ...runtime.channel import Port
from ...runtime.groups import ledger, models, optimizers, waits
from ...runtime.groups.groups import are_destroyed, bury
from ...runtime.groups.own_init import NO_CELL, Cell
from ...runtime.ranks.place import here
from ...runtime.ranks.stacks import lines_of
from ...runtime.ranks.users import is_users
from ...runtime.wire import codec
from ...runtime.wire.unicode import packed
from ..debug.actor_errors import ActorErrors
from ..debug.actor_threads import place_at_work
from ..debug.debugger import STEPS, Debugger
from ..debug.remains import num_bytes
from ..failures.together import Deeds
from ..outcome import Display, Outcome
from ..sources.source import call_cell, lines_text
from ..values.kept import Kept
from ..values.names import held_in
from ..values.odd_tensors import for_notebook
from ..values.summary import readable
from ..waiting.sightings import WAITING
from . import cell, comms
from .behind import NOTHING, Behind
from .cell import CellShell
from .comms import CommMessage
from .given import Given, RankMesh, group_of, names_of
from .guest import Lines
from .inspection import inspect_name
from .lookup import Unreadable
from .reading import read_number

VALUE_LIMIT = 1 << 20
"""Bytes up to which the value of a cell travels to the notebook by itself; a larger one stays until it is pulled."""

_MOST_FAILED = 64
"""Cells that failed here, the last ones, of which those know that were sent while they were under way."""


def _to_notebook(value: object) -> bytes:
    return codec.dumps(value, for_notebook())


def _place_in_module(stack: list[tuple[str, int]]) -> str:
    """Where a function is that came from a module of the user's: `train.py line 7`; empty while none runs."""
    files = [file for file, _ in stack]
    inside = stack[files.index(cell.__file__) :] if cell.__file__ in files else []
    places = [f"{Path(file).name} line {line}" for file, line in inside if is_users(file)]
    return places[-1] if places else ""


_SIXTEEN_COLOURS = "xterm-color"
"""What ipykernel says of the terminal. Front-ends draw 256; of 16, rich takes a black for a bar that is done."""


class KernelActor(Actor):
    """Runs cells in a namespace of its own, which lives as long as the rank."""

    _on_main_thread = True
    _is_careful = True

    def __init__(self, port: Port[bytes]) -> None:
        place = here()
        self._place = place
        self._shown = 0
        self._main = threading.get_ident()
        self._making = ""  # where it is, in words, while no line of the user's runs
        self._sources: dict[int, str] = {}
        self._begun = 0.0, 0  # when the last cell began, by the clock of `ledger`, and how many steps were made then
        self._failed = deque[int](maxlen=_MOST_FAILED)  # cells, but for those that were interrupted
        self._kept: dict[int, Kept] = {}  # by cell: of the last one at most
        if place.visits is not None:  # the rank is a process, and may not have been forked
            cell.warm()
        names = {"mesh": RankMesh(place), "device": place.device, **names_of(place)}
        self._cells = CellShell(names, self._show, dumps=_to_notebook, limit=VALUE_LIMIT, opened=place.opened)
        if self._cells.owns_process:
            if os.environ.get("TERM") == _SIXTEEN_COLOURS:
                os.environ["TERM"] = "xterm-256color"
            comms.install(lambda message: place.note("comm", message))
        self._given = Given(self._cells.namespace, names, self._cells.hidden)
        place.awaited = lambda: self._cells.awaited
        place.leftovers = self._cells.leftovers
        self._actor_errors = ActorErrors(self._cells.forget_error)
        self._debugger = Debugger(place, lambda event: port.send(packed(event)))
        self._cells.on_file, self._cells.on_done = self._debugger.dap.know, self._debugger.dap.rest
        if place.visits is not None:
            self._debugger.install()
            place.remains = self._actor_errors
        place.movers.append(lambda move: self._given.move(place))

    @endpoint
    def run(
        self,
        number: int,
        key: int,
        source: str | None,
        name: str,
        first_line: int,
        members: tuple[int, ...],
        has_store: bool,
        keep: bool = False,
        autoreload: bool = False,
        behind: tuple[int, str] = NOTHING,
        is_inquiry: bool = False,
    ) -> tuple[bool, bytes, bool]:
        """Run a cell; whether it did well, its encoded `Outcome`, and whether it has left no process groups.

        `source` is None when this rank has been sent it before under the same `key`; it begins in line `first_line`
        of what the user sees. `members` are the ranks of a partial slice (empty: the whole mesh), whose process group
        the cell finds as `group`; without a store that answers no new one is made. With `keep`, its value stays for
        `compare`, until the next cell. With `autoreload`, modules whose files have changed are renewed before. It was
        sent while `behind` was under way. An inquiry leaves what has failed here before for a look at it.
        """
        self._kept.clear()
        self._begin(is_inquiry=is_inquiry)
        if source is not None:
            self._sources[key] = source
        if behind[0] in self._failed:
            return self._closed(number, Behind(*behind).refusal)

        def prepare() -> None:
            with self._place.shield():
                self._provide_group(members, has_store, name)
                self._given.restore()
                self._cells.autoreload(autoreload)

        def keeper(value: object) -> None:
            self._kept[number] = Kept(value)

        kept = keeper if keep else None
        text = self._sources[key]
        with self._running(number, NO_CELL if members else Cell(number, name)):
            outcome = self._cells.run(
                text,
                run=number,
                name=name,
                first_line=first_line,
                keep=kept,
                prepare=prepare,
                is_inquiry=is_inquiry,
            )
            with self._place.shield():
                for note in self._given.notes():
                    print(note, file=sys.stderr)
        return self._closed(number, outcome)

    @endpoint
    def execute(
        self, run: int, head: bytes, buffers: list[Any], lines: list[Lines], behind: tuple[int, str] = NOTHING
    ) -> tuple[bool, bytes, bool]:
        """Call a function (see `guest.pack`); what is given, and `behind`, are as in `run`."""
        self._begin()
        if behind[0] in self._failed:
            return self._closed(run, Behind(*behind).refusal)

        def prepare() -> None:
            with self._place.shield():
                self._provide_group((), has_store=True, name="the function")

        with self._running(run, Cell(run, "a function")):
            outcome = self._cells.call(head, buffers, lines, run=run, prepare=prepare)
        return self._closed(run, outcome)

    def _begin(self, *, is_inquiry: bool = False) -> None:
        if not is_inquiry:
            self._actor_errors.clear()
        self._begun = time.time(), optimizers.num_steps()
        models.begin_steps()

    def _closed(self, number: int, outcome: Outcome) -> tuple[bool, bytes, bool]:
        if outcome.failure is not None:
            if outcome.failure.type_name != "KeyboardInterrupt":  # who interrupts a cell wants to go on with the next
                self._failed.append(number)
            with self._place.shield():
                models.end_broken_steps()
        return outcome.failure is None, packed(outcome), are_destroyed(self._place.groups)

    @contextlib.contextmanager
    def _running(self, run: int, cell: Cell) -> Generator[None]:
        """The debugger knows of it. A cell of all ranks may take the place of the group that one before it has left."""
        groups = self._place.groups
        if groups is not None:
            groups.cell = cell
        self._debugger.begin(run)
        try:
            yield
        finally:
            self._debugger.end()
            if groups is not None:
                groups.cell = NO_CELL

    @endpoint
    def post_mortem(self, run: int) -> tuple[str, str]:
        """Let the user look at the frames of what has failed here last, a cell or an actor; what it was, if anything.

        It is numbered as cells are: who has left the debugger in it is not asked by ranks that come to it later.
        Of an error whose frames were not kept, a summary comes second.
        """
        error = self._last_error()
        if error is None or error.__traceback__ is None:
            return "", self._cells.last_summary or self._actor_errors.summary
        with self._place.opened(), self._running(run, NO_CELL):
            self._debugger.post_mortem(error)
        return f"{type(error).__name__}: {error}", ""

    def _last_error(self) -> BaseException | None:
        return self._cells.last_error or self._actor_errors.error

    @control_endpoint
    def failed_last(self) -> str:
        """What has left something to look at: `cell`, `actor` or nothing."""
        if self._cells.last_error is not None or self._cells.last_summary:
            return "cell"
        return "actor" if self._actor_errors.error is not None or self._actor_errors.summary else ""

    @control_endpoint
    def deeds(self) -> Deeds:
        """What was done here since the last cell began, if its process groups are still those of then."""
        began, num_steps = self._begun
        last = ledger.read(1)
        has_met = any(last.read_at - entry.seconds > began for entry in last.entries)
        unreduced = models.unreduced(threading.main_thread().ident or 0)
        return Deeds(has_met, optimizers.num_steps() - num_steps, unreduced)

    @endpoint
    def give_up_gradients(self) -> None:
        """Forget what `fully_shard` is still to reduce: the ranks of a cell that failed have not the same any more."""
        with self._place.shield():
            models.forget_unreduced()

    @control_endpoint
    def held_by_error(self) -> int:
        """Bytes that are kept only for a look at what has failed here last."""
        error = self._last_error()
        return num_bytes(error, self._cells.namespace.copy()) if error is not None else 0

    @control_endpoint
    def debug(self, step: str, *args: Any) -> Any:
        """What the notebook asks of the debugger: a method of `Debugger` that the control thread may call."""
        if step not in STEPS:
            raise LookupError(f"the debugger has no step {step!r}")
        return getattr(self._debugger, step)(*args)

    @endpoint
    def heed(self, message: CommMessage) -> None:
        """What the browser says to a widget of this rank: its callbacks run now."""
        self._cells.attend(lambda: comms.heed(message))

    @endpoint
    def compare(self, cell: int, step: str, *args: object) -> object:
        """A step of comparing the value that this cell has kept: a method of `Kept`; `drop` ends it.

        Raises `LookupError` where the value is gone.
        """
        if step == "drop":
            return self._kept.pop(cell, None) and None
        if cell not in self._kept:
            raise LookupError("the value to compare is gone: it was compared, or another cell has run")
        return getattr(self._kept[cell], step)(*args)

    @endpoint
    def autoreload(self, is_on: bool) -> None:
        """From now on, see which files of modules change; the next cells come with the same word."""
        self._cells.autoreload(is_on)

    @endpoint
    def forget(self, keys: tuple[int, ...]) -> None:
        """Drop sources that the controller will not refer to any more."""
        for key in keys:
            self._sources.pop(key, None)

    @endpoint
    def know(self, cells: list[Lines]) -> None:
        """Cells of the notebook itself whose functions and classes come here by value: file, name and text."""
        for cell_of_notebook in cells:
            call_cell(*cell_of_notebook)

    @endpoint
    def push(self, names: dict[str, object]) -> None:
        """Put values into the namespace."""
        self._cells.namespace.update(names)

    @endpoint
    def pull(self, name: str, max_bytes: int) -> object:
        """A value of the namespace. Raises `NameError` if there is none, `ValueError` if it is over `max_bytes`."""
        names = self._cells.namespace
        if name not in names:
            raise NameError(f"name {name!r} is not defined on rank {self._place.rank}")
        value, reducers = names[name], for_notebook()
        with self._place.opened():
            encoded = codec.encode(value, reducers)
        if (size := encoded.nbytes) > max_bytes:
            raise ValueError(
                f"{name} is {readable(size)} on rank {self._place.rank}, over the limit of {readable(max_bytes)}: "
                f"ask for it with --max-bytes {size}"
            )
        return encoded if reducers else value

    @control_endpoint
    def complete(self, text: str, cursor: int) -> tuple[int, list[str]]:
        """Where the word at the cursor begins and what could stand there."""
        return self._cells.complete(text, cursor)

    @control_endpoint
    def inspect(self, name: str) -> str:
        """What a dotted name stands for, in lines; empty if that is not known without running code."""
        return inspect_name(name, self._cells.namespace)

    @control_endpoint
    def sample(self, path: str) -> float | str:
        """The number that an expression gives, read without running the user's code, or in words why there is none."""
        try:
            return read_number(path, self._cells.namespace)
        except Unreadable as reason:
            return str(reason)

    @control_endpoint
    def where(self) -> str:
        """Which line of which cell runs now, and the collective it waits in, in one line."""
        line, waiting = self._now()
        return ", ".join(filter(None, [line, "" if waiting is None else WAITING + waiting.call]))

    def _now(self) -> tuple[str, waits.Wait | None]:
        """The line that runs now, and what it waits in: of the main thread, or of an actor while that one rests."""
        frame = sys._current_frames().get(self._main)  # pyright: ignore[reportPrivateUsage] - documented all the same
        stack = [(code.co_filename, line) for code, line in lines_of(frame)]
        at = lines_text(stack) or lines_text(self._cells.suspended_at())
        main = at or _place_in_module(stack) or self._making or self._cells.phase
        return main or place_at_work(), waits.current(self._main, is_at_work=bool(main))

    @control_endpoint
    def glance(self) -> tuple[str, str, float]:
        """Which line of which cell runs now, the collective it waits in, and for how many seconds."""
        line, waiting = self._now()
        return (line, "", 0.0) if waiting is None else (line, waiting.call, time.monotonic() - waiting.since)

    @control_endpoint
    def report(self) -> None:
        """Send what user code has reported by now: it is on its way before the answer is."""
        if self._place.meter is not None:
            self._place.meter.flush()

    @control_endpoint
    def who(self) -> bytes:
        """What the cells have put into the namespace: encoded, a list of `Held`."""
        return packed(held_in(self._cells.namespace, self._given.first))

    def _provide_group(self, members: tuple[int, ...], has_store: bool, name: str) -> None:
        groups = self._place.groups
        whole = groups.whole_group if groups is not None else None
        if groups is None or not (groups.are_made or groups.trouble):
            return
        self._making = f"the beginning of {name}, where its `group` is made"  # which may wait for ranks that are gone
        try:
            group = whole if whole is not None and not members else group_of(groups, members, has_store)
        finally:
            self._making = ""
        former = self._given.replace_group(group)
        if former[0] is not group and not groups.has(former[0]):
            bury(former)

    def _show(self, display: Display) -> None:
        self._shown += 1
        # The place in the text first: the reader holds what follows it until the display itself has come.
        self._place.streams.show(self._shown)
        self._place.note("display", msgspec.structs.replace(display, number=self._shown))
