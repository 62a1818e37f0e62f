"""`%%on_mesh`: a cell runs on the mesh, its output appears live, its result is shown and kept."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from IPython.core.error import UsageError

from ..kernel.mesh import Mesh
from ..kernel.outcome import Failure
from ..kernel.patience import Patience
from ..kernel.results import MeshResult
from ..kernel.run import Run
from ..kernel.story import tell
from ..runtime.errors import MeshbookError, MeshError
from ..runtime.wire import codec
from ..widgets.live import BUDGET, Live
from ..widgets.stage import NotebookStage
from ..widgets.table import result_html
from .book import Book
from .drive import Drive, drive, drive_async
from .grammar import OnMeshArgs, parse_on_mesh
from .options import GrammarError, HelpRequested
from .selector import Selection, SelectorError

LAST_RESULT = "_mesh"
"""The name under which the notebook finds the last result."""

_UNBOUNDED = 1 << 60


@dataclass(slots=True)
class Cell:
    """One `%%on_mesh` cell: read, sent, and to be driven to its end."""

    args: OnMeshArgs
    mesh: Mesh
    selection: Selection
    run: Run
    drive: Drive
    stage: NotebookStage


class MeshFuture:
    """What `%%on_mesh -b` gives: the run goes on, its output appears in the cell that started it.

    `result()` waits and gives the `MeshResult` (or raises `MeshError`); `done()` asks; `await future` does not block.
    """

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    def done(self) -> bool:
        return self._cell.run.finished.done()

    def result(self, timeout: float | None = None) -> MeshResult:
        """Wait for the ranks. Raises `TimeoutError` after `timeout` seconds, `MeshError` if ranks failed."""
        self._cell.run.finished.get(timeout)
        return checked(self._cell)

    def __await__(self) -> Any:
        yield from self._cell.run.finished.__await__()
        return checked(self._cell)

    def __repr__(self) -> str:
        run = self._cell.run
        state = "done" if self.done() else f"{len(run.ranks) - len(run.owing)} of {len(run.ranks)} ranks done"
        return f"<MeshFuture {run.name}: {state}>"


class OnMesh:
    """The magic: reads the line, sends the body, and waits in one of two ways."""

    def __init__(self, shell: Any, book: Book) -> None:
        self._shell = shell
        self._book = book

    def run(self, line: str, body: str) -> object:
        """The plain cell magic, and `%on_mesh SELECTOR -- EXPR`: waits by blocking."""
        cell = self._start(line, body)
        if cell is None:
            return None
        if cell.args.bg:
            return self._leave_running(cell)
        drive(cell.drive)
        return self._finish(cell)

    async def run_async(self, line: str, body: str) -> object:
        """The same as an awaited cell: the kernel stays responsive meanwhile."""
        cell = self._start(line, body)
        if cell is None:
            return None
        if cell.args.bg:
            return self._leave_running(cell)
        await drive_async(cell.drive)
        return self._finish(cell)

    def _start(self, line: str, body: str) -> Cell | None:
        try:
            args = parse_on_mesh(line)
            mesh = self._book.get(args.mesh)
            selection = self._book.select(args.selector, mesh)
        except HelpRequested as asked:
            print(asked.text)
            return None
        except (GrammarError, SelectorError) as mistake:
            raise UsageError(str(mistake)) from None
        if args.hint:
            print(args.hint)
        source = args.expr if args.expr is not None else body
        if not source.strip():
            raise UsageError("there is nothing to run: put Python lines below %%on_mesh, or `%on_mesh -- EXPR`")
        return self._send(args, mesh, selection, source)

    def _send(self, args: OnMeshArgs, mesh: Mesh, selection: Selection, source: str) -> Cell:
        name = args.label or f"cell {self._shell.execution_count}"
        try:
            run = mesh.run(source, selection.ranks, name=name)
        except MeshbookError as error:
            raise UsageError(str(error)) from None
        if args.local:
            self._shell.ex(self._shell.transform_cell(source))
        stage = NotebookStage(self._shell)
        budget = _UNBOUNDED if args.full else BUDGET
        live = Live(stage, selection.ranks, budget, is_quiet=args.no_stream or args.bg, tail=args.tail)
        patience = Patience(time.monotonic(), args.on_error, args.grace, args.timeout)
        return Cell(args, mesh, selection, run, Drive(mesh, run, live, patience), stage)

    def _leave_running(self, cell: Cell) -> MeshFuture:
        """Let the loop's thread show what comes, in the output of this cell."""
        future = MeshFuture(cell)
        self._keep(cell.args, future)
        cell.stage.leave()
        live, run = cell.drive.live, cell.run
        run.on_late = lambda: live.late(run.take(), time.monotonic())
        run.on_late()
        return future

    def _finish(self, cell: Cell) -> object:
        """Show and store what came back; raise if ranks failed or the user interrupted."""
        result = result_of(cell)
        self._keep(cell.args, result)
        if cell.args.show != "none":
            self._show(cell, result)
        cell.stage.leave()
        if cell.drive.patience.reason == "user":
            raise KeyboardInterrupt(_interrupted_text(cell))
        checked(cell, result)
        for name in cell.args.get:
            self._shell.user_ns[name] = cell.mesh.pull(name, cell.selection.ranks)
        return result if cell.args.expr is not None else None

    def _show(self, cell: Cell, result: MeshResult) -> None:
        if not result.has_values:
            return
        if cell.args.show == "first":
            result = result.sel(rank=result.ranks[0])
        elif cell.args.show == "table":
            result = result.table()
        cell.stage.display(result._repr_mimebundle_())  # pyright: ignore[reportPrivateUsage] - what IPython calls

    def _keep(self, args: OnMeshArgs, result: object) -> None:
        self._shell.user_ns[LAST_RESULT] = result
        if args.out:
            self._shell.user_ns[args.out] = result


def result_of(cell: Cell) -> MeshResult:
    """What came back so far."""
    progress = cell.run.progress
    cell.mesh.last_failed = tuple(sorted({*progress.failed, *progress.lost}))
    return MeshResult(
        cell.mesh.axes,
        cell.run.ranks,
        progress.outcomes,
        progress.seconds,
        progress.lost,
        codec.loads,
        result_html,
    )


def checked(cell: Cell, result: MeshResult | None = None) -> MeshResult:
    """The result, if all ranks did well. Raises `MeshError`, with the story of those that did not."""
    result = result or result_of(cell)
    if not result.failed and not result.lost:
        return result
    waiting = _fates(cell, result.failures)
    failures = {rank: failure for rank, failure in result.failures.items() if rank not in waiting}
    lost = {rank: why.partition("\n")[0] for rank, why in result.lost.items()}
    words = {rank: cell.mesh.roster.last_words(rank) for rank in lost if rank not in cell.drive.abandoned}
    story = tell(cell.mesh.axes, result.ranks, failures, lost, waiting, words)
    raise MeshError(story.summary, by_rank=result.errors, result=result, story=story.text(ansi=True))


def _fates(cell: Cell, failures: Mapping[int, Failure]) -> dict[int, str]:
    """What became of the ranks that were interrupted because others failed: not their fault, and told apart."""
    if cell.drive.patience.reason != "failure" or cell.drive.waiting is None:
        return {}
    return {
        rank: f"was at {cell.drive.waiting.get(rank) or 'an unknown line'}; interrupted after "
        f"{cell.args.grace:g} s, state kept"
        for rank, failure in failures.items()
        if failure.type_name == "KeyboardInterrupt"
    }


def _interrupted_text(cell: Cell) -> str:
    """One line for the user who pressed stop."""
    busy = cell.drive.abandoned
    if busy:
        return f"ranks {busy} did not react and are still busy: `%mesh restart` gives fresh ones"
    return "the ranks were interrupted; they are idle and keep their state"
