"""`%%on_mesh`: a cell runs on the mesh, its output appears live, its result is shown and kept."""

from __future__ import annotations

import ast
import asyncio
import re
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

from IPython.core.error import UsageError

from ..kernel.drive import Drive
from ..kernel.driver import drive, drive_async
from ..kernel.failures.interrupted import Interrupted, told_in_one_line
from ..kernel.mesh import Mesh
from ..kernel.ranks.comms import CommMessage
from ..kernel.ranks.magic_shell import refusal
from ..kernel.run import Run
from ..kernel.sources.setting_check import too_late
from ..kernel.sources.slice_check import groupless
from ..kernel.stopping.patience import Patience
from ..kernel.values.measure import Tolerance
from ..kernel.values.results import MeshResult
from ..kernel.verdict import note_failed, stopped_by, was_stopped
from ..kernel.waiting.hangs import watches_of
from ..runtime.errors import MeshbookError
from ..runtime.wire import sigint
from ..widgets.arrivals import Arrivals
from ..widgets.comms import Comms
from ..widgets.difference import DiffView
from ..widgets.live import BUDGET, Live
from ..widgets.stage import NotebookStage
from .background import MeshFuture, watch
from .book import Book
from .code import freshen
from .diff import view_of
from .grammar import Diff, OnMeshArgs, parse_on_mesh
from .options import GrammarError, HelpRequested
from .pull import pull
from .running_cell import running_cell
from .selector import parse_selector
from .sent_cell import LAST_RESULT, Cell, bundle_of, checked, is_shown, result_of, shaped
from .terms import SelectorError

NOTHING_TO_RUN = "there is nothing to run: put Python lines below %%on_mesh, or write `%on_mesh [SELECTOR] -- EXPR`"

_AS_IT_WAS_SENT = "the cell was stopped as it was sent"
_AS_IT_CAME_BACK = "the cell was stopped after its end, as its results were put together"

_UNBOUNDED = 1 << 60
_MAX_WARNINGS = 3


@dataclass(frozen=True, slots=True)
class _Asked:
    """A cell that is to be sent: how, where to, and what runs."""

    args: OnMeshArgs
    mesh: Mesh
    ranks: tuple[int, ...]
    source: str
    is_inquiry: bool = False


class OnMesh:
    """The magic: reads the line, sends the body, and waits in one of two ways."""

    def __init__(self, shell: Any, book: Book) -> None:
        self._shell = shell
        self._book = book
        self._comms = Comms()
        self.on_send: Callable[[Mesh, Sequence[int], str], object] = lambda mesh, ranks, name: None
        """Called before a cell is sent, with where to and how it is called."""

    def run(self, line: str, body: str) -> object:
        """The plain cell magic, and `%on_mesh SELECTOR -- EXPR`: waits by blocking."""
        with told_in_one_line(_AS_IT_WAS_SENT):
            asked = self._asked(line, body)
            if asked is None:
                return None
            if asked.args.local:
                _check_ran_here(self._shell.run_cell(asked.source, store_history=False))
            cell = self._send(asked)
            if cell.args.bg:
                return self._leave_running(cell)
            _drive(cell)
        with told_in_one_line(_AS_IT_CAME_BACK):
            return self._finish(cell)

    def diff(self, args: Diff) -> DiffView:
        """`%mesh diff`: the expression runs like one of `%on_mesh`, but what comes back is no result to keep."""
        mesh, ranks = self._book.chosen(args.mesh, args.sel)
        cell = self._send(_Asked(OnMeshArgs(args.sel, args.expr, show="diff"), mesh, ranks, args.expr, True))
        _drive(cell)
        cell.arrivals.settle(None)
        if not (result := result_of(cell)).ok:  # else what failed before is still to be looked at
            note_failed(cell.drive, result)
        _raise_if_stopped(cell, result)
        checked(cell)
        return view_of(mesh, cell.run, Tolerance(args.rtol, args.atol), args.max_bytes)

    async def run_async(self, line: str, body: str) -> object:
        """The same as an awaited cell: the kernel stays responsive meanwhile."""
        with told_in_one_line(_AS_IT_WAS_SENT):
            # With the names of the cell that awaits it.
            asked = self._asked(self._shell.var_expand(line, depth=1), body)
            if asked is None:
                return None
            if asked.args.local:
                await self._run_here(asked.source)
            cell = self._send(asked)
            if cell.args.bg:
                return self._leave_running(cell)
            await drive_async(cell.drive)
        with told_in_one_line(_AS_IT_CAME_BACK):
            return self._finish(cell)

    def _asked(self, line: str, body: str) -> _Asked | None:
        """What the line asks for; None where it is for help, which is shown."""
        try:
            args = parse_on_mesh(line, self._book.defaults)
            mesh, ranks = self._book.chosen(args.mesh, args.selector)
        except HelpRequested as asked:
            print(asked.text)
            return None
        except (GrammarError, SelectorError) as mistake:
            raise UsageError(f"{mistake}{_advice(line, body)}") from None
        if args.hint:
            print(args.hint)
        source = args.expr if args.expr is not None else body
        if not source.strip():
            raise UsageError(NOTHING_TO_RUN)
        if elsewhere := refusal(*_as_magic(source)):  # said by ranks it would take the place of what they failed with
            raise UsageError(elsewhere)
        return _Asked(args, mesh, ranks, source)

    def _send(self, asked: _Asked) -> Cell:
        args, mesh, ranks, source = asked.args, asked.mesh, asked.ranks, asked.source
        number, text = running_cell(self._shell)
        name = args.label or f"cell {number}"
        first_line = _first_line(text, source, args.expr is not None)
        if not args.no_check:
            _warn(mesh, ranks, source, first_line)
        freshen(self._shell, self._book, mesh)
        self.on_send(mesh, ranks, name)
        if args.bg:  # before a rank can stop
            mesh.desk.begin_background()
        try:
            keep = args.show == "diff"
            run = mesh.run(source, ranks, name=name, first_line=first_line, keep=keep, is_inquiry=asked.is_inquiry)
            try:
                return self._watched(asked, run)
            except KeyboardInterrupt:
                mesh.stop(run)
                raise
        except BaseException as error:
            if args.bg:
                mesh.desk.end_background()
            if isinstance(error, MeshbookError):
                raise UsageError(str(error)) from None
            raise

    def _watched(self, asked: _Asked, run: Run) -> Cell:
        """All that it takes to show what comes of it."""
        args, mesh, ranks = asked.args, asked.mesh, asked.ranks
        stage = NotebookStage(self._shell)
        budget = _UNBOUNDED if args.full else BUDGET

        def on_comm(rank: int, message: CommMessage) -> None:
            answer = partial(mesh.tell_widget, rank, run=run)
            self._comms.take(mesh.roster, rank, message, stage, answer)

        live = Live(stage, ranks, budget, args.no_stream, args.tail, on_comm, mesh.shown_by_name)
        patience = Patience(time.monotonic(), args.on_error, args.grace, args.timeout)
        arrivals = Arrivals(stage, run, lambda: mesh.desk.held, lambda: mesh.queued(run))
        watches = watches_of(mesh, run, live.note)
        if stage.is_in_cell and not (args.bg or args.no_stream):
            watches = (*watches, arrivals)
        driven = Drive(mesh, run, live, patience, is_inquiry=asked.is_inquiry, watches=watches)
        return Cell(args, mesh, run, driven, stage, arrivals, self._shell.user_ns)

    async def _run_here(self, source: str) -> None:
        """`--local`: before the ranks, so that a mistake shows while nothing has run on them."""
        cell = self._shell.transform_cell(source)
        running = self._shell.run_cell_async(source, store_history=False, transformed_cell=cell)
        with _stops_at_once(running):
            ran = await running
        _check_ran_here(ran)

    def _leave_running(self, cell: Cell) -> MeshFuture:
        future = MeshFuture(cell)
        self._keep(cell.args, future)
        watch(cell)
        return future

    def _finish(self, cell: Cell) -> object:
        """Show and store what came back; raise if ranks failed or the user interrupted."""
        result = result_of(cell)
        note_failed(cell.drive, result)
        if result.lost:
            self._book.note_told(cell.mesh, result.lost)
        self._keep(cell.args, result)
        is_line = cell.args.expr is not None
        shown = shaped(cell, result)
        cell.arrivals.settle(bundle_of(shown) if is_shown(cell, result) else None)
        cell.stage.leave()
        _raise_if_stopped(cell, result)
        checked(cell, result)
        for name in cell.args.get:
            self._shell.user_ns[name] = list(pull(cell.mesh, name, cell.run.ranks).values())
        return shown if is_line else None  # like any expression, shown where it ends a cell

    def _keep(self, args: OnMeshArgs, result: object) -> None:
        self._shell.user_ns[LAST_RESULT] = result
        if args.out:
            self._shell.user_ns[args.out] = result


def _drive(cell: Cell) -> None:
    """By blocking."""
    try:
        drive(cell.drive)
    except KeyboardInterrupt:  # before presses were counted
        cell.mesh.stop(cell.run)
        raise


def _first_line(text: str, source: str, is_line: bool) -> int:
    """Where in its cell the source begins: errors then name the line that the notebook's margin shows."""
    wanted = source.rstrip("\n")
    begin = text.rfind(wanted)
    if is_line and (found := re.search(rf"%on_mesh\b[^\n]*--\s+{re.escape(wanted)}", text)):
        begin = found.start()
    return text.count("\n", 0, max(begin, 0)) + 1


@contextmanager
def _stops_at_once(running: Any) -> Generator[None]:
    """Raise Ctrl-C where it hits, as in any cell of the notebook; the kernel puts it off until a coroutine waits."""
    former = sigint.handler()
    if threading.current_thread() is not threading.main_thread() or not callable(former):
        yield
        return

    def press(number: int, frame: FrameType | None) -> None:
        if running.cr_running:
            raise KeyboardInterrupt
        former(number, frame)  # raised while the loop's own code runs, it would end the loop

    sigint.let(press)
    try:
        yield
    finally:
        sigint.let(former)


def _check_ran_here(ran: Any) -> None:
    """Nothing is sent after a part here that was stopped or has failed."""
    error = ran.error_in_exec or ran.error_before_exec  # also between two statements, where IPython compiles the next
    if isinstance(error, KeyboardInterrupt | asyncio.CancelledError):
        raise Interrupted("--local: the cell was stopped here, so it was not sent to the ranks")
    if not ran.success:
        raise UsageError("--local: the cell failed here, so it was not sent to the ranks")


def _advice(line: str, body: str) -> str:
    """For who has written `%on_mesh x + 1`, or options of what is to run."""
    if body.strip() or "--" in line.split():
        return ""
    return f" (what is to run goes behind --, such as `%on_mesh {_divided(line.strip())}`)"


def _divided(line: str) -> str:
    """A line in which `--` is missing, with it: behind a selector where one is followed by an expression.

    Example:
        >>> _divided("dp=0 x + 1"), _divided("2 * x"), _divided("0 rank"), _divided("!ls"), _divided("0 %cd x")
        ('dp=0 -- x + 1', '-- 2 * x', '0 -- rank', '-- !ls', '0 -- %cd x')
    """
    words = line.split(" ")
    for count in range(len(words)):
        selector, rest = " ".join(words[:count]), " ".join(words[count:])
        with suppress(SelectorError, SyntaxError):
            if not re.match(r"[%!][a-z]", rest):
                ast.parse(rest, mode="eval")
            parse_selector(selector)
            return f"{selector} -- {rest}".lstrip()
    return f"-- {line}"


def _as_magic(source: str) -> tuple[str, str]:
    """The name and the line of a body that is nothing but a line magic."""
    found = re.fullmatch(r"\s*%(\w+)(.*)\n*", source)
    return (found[1], found[2]) if found else ("", "")


def _warn(mesh: Mesh, ranks: Sequence[int], source: str, first_line: int) -> None:
    """Before the cell runs: of what may hang, and of what does nothing."""
    late = too_late(source, mesh.roster.specs[0].env, first_line)
    warnings = [each.warning() for each in late]
    if len(ranks) < mesh.num_ranks and mesh.options.pg != "none":  # without groups of ours nobody knows what is a slice
        dead = mesh.roster.dead()
        warnings += [each.warning(len(ranks), mesh.num_ranks, dead) for each in groupless(source, first_line)]
    for warning in warnings[:_MAX_WARNINGS]:
        print(f"warning: {warning}", file=sys.stderr)


def _raise_if_stopped(cell: Cell, result: MeshResult) -> None:
    if was_stopped(cell.drive, result):
        raise stopped_by(cell.drive, result, cell.notebook)
    if cell.drive.mended and result.ok:  # no story tells it
        print(f"↻ {cell.drive.mended}", file=sys.stderr)
