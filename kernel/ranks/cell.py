"""A cell runs: its source goes in, an `Outcome` comes out, what it displays on the way goes to a callback."""

from __future__ import annotations

import builtins
import gc
import importlib
import inspect
import os
import reprlib
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import count
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ...runtime.ranks.children import end_child
from ...runtime.wire import codec
from ..debug.places import suspended
from ..debug.remains import is_out_of_memory, let_go, num_bytes, summary_of
from ..failures.failure import bare_failure, bare_text, entry_of, failure_of, has_struck_users
from ..outcome import Display, Failure, Outcome, Value
from ..sources.source import Program, file_of, is_async, program_of, remember
from ..values.mime import plain, portable, wants_front_end
from ..values.summary import describe, is_widget, shown_above
from .completion import complete
from .guest import Guests, Lines
from .loop import CellLoop
from .shell import QuietShell
from .warned import name_cells

if TYPE_CHECKING:
    from IPython.core.formatters import DisplayFormatter

_INLINE_FIGURES = "module://matplotlib_inline.backend_inline"

_OFTEN_USED = (
    "asyncio.subprocess",
    "comm",
    "nest_asyncio",
    "IPython.display",
    "IPython.core.magics.basic",
    "IPython.core.magics.execution",
    "IPython.core.magics.osm",
    "IPython.core.magics.script",
)
"""Modules that some cell would otherwise import on every rank."""

_warmed: QuietShell | None = None
"""The shell that `warm` has made and no `CellShell` has taken; in a zygote it waits for the fork."""


def warm() -> None:
    """Make this a process that runs cells: the zygote, once, before it forks; or a rank that was not forked.

    Does nothing in a process that is one already. Creates the process's one IPython shell, imports what cells need,
    runs a few (30 ms in all). Leaves no thread, no event loop, and `__main__` as it was. Figures will
    be drawn inline; matplotlib itself is not imported.
    """
    global _warmed
    if QuietShell.initialized():
        return
    os.environ.setdefault("MPLBACKEND", _INLINE_FIGURES)
    for module in _OFTEN_USED:
        importlib.import_module(module)
    main, hook = sys.modules["__main__"], sys.displayhook
    _warmed = shell = QuietShell.instance()
    name_cells()
    rehearsal = CellShell({}, lambda display: None)
    for line in ("1 / 0", "{'a': [1.5]}", "%precision", "pass"):
        rehearsal.run(line, run=0, name="rehearsal")
    rehearsal.complete("pri", 3)
    rehearsal.last_error = None
    sys.modules["__main__"], sys.displayhook = main, hook
    shell.builtin_trap.__exit__(None, None, None)
    _warmed = shell


def catch_up() -> None:
    """In a zygote: take note of what it has imported since `warm`. Each rank would do so in its first cell."""
    if _warmed is not None:
        _warmed.editions.look()


MUCH_MEMORY = 16 << 20
"""Bytes in the frames of a failed cell that are worth a collection (200 ms, with torch) before the next one begins."""

_MOST_PROGRAMS = 128
"""Compiled cells that are kept in case they run again, as in a loop, or when the user runs a cell once more."""

_Text = tuple[str, int]
"""A cell's source and its first line."""


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A cell as it ran last."""

    name: str
    file: str
    future_flags: int
    """Those of `__future__` after it was compiled."""
    program: Program


class CellShell:
    """Runs cells, one after the other, in one namespace.

    In a process that `warm` has prepared, the first `CellShell` owns the process: its namespace is
    `__main__`, its shell is what `get_ipython()` returns, figures are drawn, and library code may call
    `asyncio.run` inside an awaited cell. Any other one is private (ranks as threads, in tests): `get_ipython`
    and `display` are its own by their plain names in the namespace, but `from IPython.display import display`
    finds the process's shell, matplotlib draws nothing, asyncio is not patched, classes of cells are pickled
    by cloudpickle only, `!cmd` writes to the process's own file descriptors.

    >>> shell = CellShell({"rank": 3}, show=lambda display: None)
    >>> shell.run("rank + 1", run=1, name="cell 1").value.text
    '4'
    >>> shell.run("1 / 0", run=2, name="cell 2").failure.message
    'division by zero'
    >>> shell.complete("ran", 3)
    (0, ['range', 'rank'])
    >>> shell.close()
    """

    def __init__(
        self,
        names: Mapping[str, object],
        show: Callable[[Display], None],
        *,
        dumps: Callable[[object], bytes] = codec.dumps,
        limit: int = 1 << 20,
        opened: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Begin with `names`. `show` is called for each display, on the thread that displays.

        `dumps` pickles the values that travel, up to `limit` bytes (see `describe`). Cells run inside of `opened()`,
        and are interrupted nowhere else.
        """
        global _warmed
        owned, _warmed = _warmed, None
        self._shell = owned or QuietShell()
        self._show, self._dumps, self._limit, self._opened = show, dumps, limit, opened
        self._loop = CellLoop(may_nest=owned is not None)
        self._run, self._numbers = 0, count(1)
        self.phase = ""
        """Where it is, in words, while no code of the user's runs, at the beginning and the end: both may take time."""
        self._name = ""
        self._programs: dict[_Text, _Compiled] = {}  # of cells that may run again
        self._last: object = None
        self.on_file: Callable[[str, str, int, str], object] = lambda file, source, first_line, place: None
        """Called before a cell runs, with its file name, text and first line; of one of the notebook's own its file."""
        self.on_done: Callable[[], object] = lambda: None
        """Called when the user's code has ended, before anything is done with what it gave or raised."""
        self._awaited: Coroutine[Any, Any, Any] | None = None
        self.last_error: BaseException | None = None
        """What ended the last cell, with its frames, for a debugger; the next cell drops it."""
        self._failed_in = 0
        """The run that it ended."""
        self.last_summary = ""
        """A text in its place, where memory had run out and nothing of it was kept."""
        self._shell.publish, self._shell.clear = self._publish, self._clear
        self._shell.keep_last = self._bind_last
        self._shell.loop_runner = self._loop.run
        given = names if owned else {"display": self._shell.show, **names}
        self._shell.live_in(ModuleType("__main__"), given, as_main=owned is not None)
        self._guests = Guests(self.namespace)
        self.owns_process = owned is not None
        if owned:
            owned.builtin_trap.__enter__()  # for good: no need to swap builtins at each cell
            sys.displayhook = owned.displayhook
            builtins.input = _refuse_input  # until a debugger, which has a way to the notebook, takes over

    @property
    def namespace(self) -> dict[str, Any]:
        """The names of the cells."""
        return cast("dict[str, Any]", self._shell.user_ns)  # pyright: ignore[reportUnknownMemberType]

    @property
    def hidden(self) -> dict[str, Any]:
        """The names that `%who` does not list, as they are no cell's."""
        return cast("dict[str, Any]", self._shell.user_ns_hidden)  # pyright: ignore[reportUnknownMemberType]

    def run(
        self,
        source: str,
        *,
        run: int,
        name: str,
        first_line: int = 1,
        keep: Callable[[object], object] | None = None,
        prepare: Callable[[], None] = lambda: None,
        is_inquiry: bool = False,
    ) -> Outcome:
        """Run a cell to its end; raises nothing. `keep` is given its value, None too.

        `run` numbers the runs; `name` is what a reader calls the cell; `first_line` is where `source` begins in it, for
        the line numbers of tracebacks. `prepare` is called first: what it raises, the cell raises. An inquiry leaves
        what has failed before it, unless it fails itself.
        """
        file = file_of(name, source, first_line)
        self.on_file(file, source, first_line, "")
        outcome = partial(self._outcome, (source, first_line), name, file, prepare, keep)
        return self._told(run, name, file, outcome, is_inquiry=is_inquiry)

    def call(
        self,
        head: bytes,
        buffers: Sequence[Any],
        lines: Sequence[Lines],
        *,
        run: int,
        prepare: Callable[[], None] = lambda: None,
    ) -> Outcome:
        """Call a function that came from the notebook (see `guest`); raises nothing. The whole value travels."""
        for place, file, text in lines:
            self.on_file(file, text, 1, place)
        return self._told(run, "the call", "", lambda: self._visited(head, buffers, lines, prepare))

    def _told(
        self, run: int, name: str, file: str, outcome: Callable[[], Outcome], *, is_inquiry: bool = False
    ) -> Outcome:
        self._run, self._numbers = run, count(1)
        self._name, self.phase = name, f"the beginning of {name}"
        try:
            if not is_inquiry:
                self._drop_error()
            return outcome()
        except BaseException as error:  # noqa: BLE001 - a signal hit a line of ours: before the cell's first, after its last
            # It came while a failure was told, and the user's line is that one's.
            if self.last_error is not None and self._failed_in == run:
                error.__traceback__ = self.last_error.__traceback__
            return Outcome(failure=failure_of(error, file, self._shell))
        finally:
            self._run, self.phase = 0, ""
            if self._guests.brought:
                self._guests.forget_gone()
            if self.last_error is not None and is_out_of_memory(self.last_error):
                with self._opened():
                    self._keep_summary(self.last_error)

    def _drop_error(self) -> None:
        """What has printed the frames of a failed cell holds them in circles, and with them their tensors."""
        error, self.last_error, self.last_summary = self.last_error, None, ""
        try:
            is_heavy = error is not None and num_bytes(error, self.namespace, MUCH_MEMORY) >= MUCH_MEMORY
        except Exception:  # noqa: BLE001 - a tensor of an odd kind, say, which tells no size: what it holds may be much
            is_heavy = True
        del error
        if is_heavy:
            gc.collect()

    def _keep_error(self, error: BaseException) -> None:
        if self.last_error is not None or self.last_summary:  # of a cell before an inquiry
            self._drop_error()
        self.last_error, self._failed_in = error, self._run

    def _keep_summary(self, error: BaseException) -> None:
        """Keep of an error what it says, and free what its frames hold."""
        self.last_summary = f"{type(error).__name__}: {error}\n{summary_of(error)}"
        self.last_error = None
        let_go(error)

    def forget_error(self) -> None:
        """Something else has failed here since the last cell. Any thread may say so; while a cell runs it is not so."""
        if not self._run:
            self.last_error, self.last_summary = None, ""

    def autoreload(self, is_on: bool) -> None:
        """Look for modules whose files have changed before each cell, or no more."""
        self._shell.autoreload(is_on)

    def attend(self, work: Callable[[], object]) -> None:
        """Run a callback of the user's, outside of any cell, where it may make tasks; what it raises comes out."""
        with self._opened(), _StreamsKept():
            self._loop.run(_called_in_loop(work))

    def complete(self, text: str, cursor: int) -> tuple[int, list[str]]:
        """Where the word at the cursor begins, and what could stand there. Any thread may ask at any time."""
        return complete(text, cursor, self._shell.Completer, self.namespace)

    @property
    def awaited(self) -> Coroutine[Any, Any, Any] | None:
        """The coroutine of an awaiting cell, or of the last one that was."""
        return self._awaited

    def suspended_at(self) -> list[tuple[str, int]]:
        """File and line of each coroutine of an awaiting cell, from the outside in."""
        return [(frame.f_code.co_filename, line) for frame, line in suspended(self._awaited)]

    @property
    def leftovers(self) -> CellLoop:
        """What cells have left in their event loop."""
        return self._loop

    def close(self) -> None:
        """End the event loop of the cells."""
        self._loop.close()

    def _program(self, text: _Text, name: str, file: str) -> Program:
        """The compiled cell; from the last time, where nothing has changed how a text is compiled."""
        source, first_line = text
        shell = self._shell
        former = self._programs.pop(text, None)
        if former is None or not shell.has_default_syntax or former.future_flags != shell.future_flags:
            program = program_of(source, file, first_line, shell)
        elif former.file == file:
            program = former.program
        else:
            remember(source, file, first_line)
            program = former.program.named(former.file, file)
        if program.is_plain:
            self._programs[text] = _Compiled(name, file, shell.future_flags, program)
        if len(self._programs) > _MOST_PROGRAMS:
            del self._programs[next(iter(self._programs))]
        return program

    def _outcome(
        self,
        text: _Text,
        name: str,
        file: str,
        prepare: Callable[[], None],
        keep: Callable[[object], object] | None,
    ) -> Outcome:
        try:
            prepare()
            # Outside of what is interrupted: IPython swallows a KeyboardInterrupt in what it calls there.
            told = self._shell.before_cell(text[0])
            with self._opened():
                try:
                    with _StreamsKept():
                        return self._valued(self._played(self._program(text, name, file)), keep)
                finally:  # extensions hear of its end, and matplotlib draws then, also when it fails
                    self._shell.after_cell(told)
        except BaseException as error:  # noqa: BLE001 - whatever a cell raises is its outcome
            self._keep_error(error)
            return Outcome(failure=self._failure(error, file))

    def _visited(
        self, head: bytes, buffers: Sequence[Any], lines: Sequence[Lines], prepare: Callable[[], None]
    ) -> Outcome:
        try:
            prepare()
            with self._opened(), _StreamsKept(), self._guests.admit(head, buffers, lines) as (function, args, kwargs):
                value = self._called(function, args, kwargs)
                self._end_with("value")
                return Outcome(value=Value(type(value).__name__, reprlib.repr(value), pickled=self._dumps(value)))
        except BaseException as error:  # noqa: BLE001 - as for a cell
            self._keep_error(error)
            return Outcome(failure=self._failure(error, entry_of(error)))

    def _failure(self, error: BaseException, file: str) -> Failure:
        """Tell of what has ended the user's code, also to one who presses stop just then, which was meant for that."""
        self._end_with("error")
        for _ in range(2):  # who presses again has had enough
            try:
                with self._opened():  # the text of an error is user code too
                    return failure_of(error, file, self._shell)
            except KeyboardInterrupt as stop:
                if has_struck_users(stop):
                    break
        return bare_failure(error, file, bare_text(error))

    def _called(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            value = function(*args, **kwargs)
            if inspect.iscoroutine(value):
                self._awaited = value
                value = self._loop.run(value)
            return value
        except BaseException as error:
            end_child(error)
            raise
        finally:
            self.on_done()

    def _end_with(self, what: str) -> None:
        self.phase = f"the end of {self._name} (its {what} is told)"

    def _valued(self, value: object, keep: Callable[[object], object] | None) -> Outcome:
        """What comes of a cell that ended with this value."""
        self._end_with("value")
        self._bind_last(value)
        if keep is not None:
            keep(value)
        if is_widget(value):  # it lives here, and is shown as `display` does
            self._shell.show(value)
            return Outcome()
        return Outcome() if value is None else Outcome(value=self._described(value))

    def _played(self, program: Program) -> Any:
        try:
            return self._play(program)
        except BaseException as error:
            end_child(error)
            raise
        finally:
            self.on_done()

    def _play(self, program: Program) -> Any:
        names = self.namespace
        if program.wants_loop:
            self._awaited = awaited = _play_async(program, names)
            try:
                return self._loop.run(awaited)
            finally:
                if inspect.getcoroutinestate(awaited) == inspect.CORO_CREATED:  # interrupted before its first line:
                    awaited.close()  # its destructor would complain, in the next cell, and swallow an interrupt of that
        if program.body is not None:
            exec(program.body, names)
        return None if program.last is None else eval(program.last, names)

    def _bind_last(self, value: object) -> None:
        """`_` is the last value, unless the user has a `_` of their own. Nothing older is kept."""
        if value is not None and self.namespace.get("_", self._last) is self._last:
            self.namespace["_"] = self._last = value

    def _described(self, value: object) -> Value:
        formatter = cast("DisplayFormatter", self._shell.display_formatter)
        seen = describe(value, limit=self._limit, dumps=self._dumps, formatter=formatter)
        if not wants_front_end(seen.mime):
            return seen
        self._shell.show(value)
        return msgspec.structs.replace(seen, text=shown_above(value), mime={})

    def _publish(
        self,
        bundle: Mapping[str, object],
        metadata: Mapping[str, object],
        display_id: str | None,
        is_update: bool,
    ) -> None:
        self._send(mime=portable(bundle), metadata=plain(metadata), display_id=display_id, is_update=is_update)

    def _clear(self, wait: bool) -> None:
        self._send(mime={}, metadata={"wait": True} if wait else {}, is_clear=True)

    def _send(self, **fields: Any) -> None:
        self._show(Display(run=self._run, number=next(self._numbers), **fields))


def _refuse_input(prompt: object = "") -> str:
    raise EOFError("nobody sits at a rank: ask with input() in the notebook's own cell, then `%mesh push` the answer")


async def _play_async(program: Program, names: dict[str, Any]) -> Any:
    """One coroutine for the whole cell: its last expression sees the context variables that its body sets."""
    await _awaited(program.body, names)
    return await _awaited(program.last, names)


async def _called_in_loop(work: Callable[[], object]) -> None:
    work()


async def _awaited(code: CodeType | None, names: dict[str, Any]) -> Any:
    if code is None:
        return None
    result = eval(code, names)
    return await result if is_async(code) else result


class _StreamsKept:
    """A cell that replaces `sys.stdout` and fails before it puts it back must not silence the next."""

    __slots__ = ("_kept",)

    def __enter__(self) -> None:
        self._kept = sys.stdout, sys.stderr

    def __exit__(self, *_: object) -> None:
        sys.stdout, sys.stderr = self._kept
