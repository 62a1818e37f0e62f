"""A cell in the background: its future, and the thread that shows what it says and tells its end."""

from __future__ import annotations

import threading
from typing import Any

from ..kernel.driver import drive_in_background
from ..kernel.stopping.stopped import stop
from ..kernel.values.results import MeshResult
from ..kernel.verdict import note_failed
from ..runtime.errors import MeshError
from .sent_cell import Cell, bundle_of, checked, is_shown, result_of, shaped


class MeshFuture:
    """What `%%on_mesh -b` gives: the run goes on, its output appears in the cell that started it.

    `result()` waits and gives the `MeshResult` (or raises `MeshError`); `done()` asks; `await future` does not block;
    `cancel()` interrupts the ranks.
    """

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    def done(self) -> bool:
        return self._cell.run.finished.done()

    def result(self, timeout: float | None = None) -> MeshResult:
        """Wait for the ranks. Raises `TimeoutError` after `timeout` seconds, `MeshError` if ranks failed."""
        try:
            self._cell.run.finished.get(timeout)
        except TimeoutError:
            if timeout is None:  # raised by a signal handler of the user's
                raise
            raise TimeoutError(f"{self!r} after {timeout:g} s: it goes on") from None
        self._cell.shown.future.get()  # so that it stands before what the caller shows
        return checked(self._cell)

    def get(self, timeout: float | None = None) -> MeshResult:
        """The same as `result`, as futures of actors call it."""
        return self.result(timeout)

    def exception(self, timeout: float | None = None) -> MeshError | None:
        """Wait like `result`, and give what it would raise; None if all ranks did well. Raises `TimeoutError`."""
        try:
            self.result(timeout)
        except MeshError as error:
            return error
        return None

    def cancel(self) -> bool:
        """Interrupt the ranks that are not done, also those that have not begun; False if there are none."""
        run = self._cell.run
        if not (ranks := [*run.owing]):
            return False
        stop([run], ranks, "interrupted by `cancel()` of its future")
        self._cell.mesh.interrupt(ranks, run.call)
        return True

    def __await__(self) -> Any:
        yield from self._cell.run.finished.__await__()
        yield from self._cell.shown.future.__await__()
        return checked(self._cell)

    def __repr__(self) -> str:
        return f"<MeshFuture {self._cell.run.name}: {self._state}>"

    @property
    def _state(self) -> str:
        if self._cell.told is not None:
            return str(self._cell.told)
        run = self._cell.run
        bad = {*run.progress.failed, *run.progress.lost}
        if self.done() and not bad:
            return "done"
        num_well = len({*run.ranks} - {*run.owing} - bad)
        return f"{num_well} of {len(run.ranks)} ranks done{f', {len(bad)} failed' if bad else ''}"


def watch(cell: Cell) -> None:
    """Let a thread show what comes, in the output of its cell, and interrupt late ranks."""
    cell.stage.leave()
    threading.Thread(target=_watch, args=(cell,), name="meshbook-cell", daemon=True).start()


def _watch(cell: Cell) -> None:
    try:
        drive_in_background(cell.drive)
        _tell_end(cell)
    finally:
        cell.mesh.desk.end_background()
        cell.shown.resolve(None)


def _tell_end(cell: Cell) -> None:
    """Show what came back, or say at once that ranks have failed."""
    result = result_of(cell)
    note_failed(cell.drive, result)
    try:
        checked(cell, result)
        if is_shown(cell, result):
            cell.stage.display(bundle_of(shaped(cell, result)))
    except MeshError as error:
        cell.told = error
        cell.stage.write(f"{error.story}\n{error}: `result()` of its future raises this\n", "stderr")
