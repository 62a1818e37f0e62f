"""A cell that was sent to the mesh: what has come of it, and how the notebook shows that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..kernel.drive import Drive
from ..kernel.mesh import Mesh
from ..kernel.run import Run
from ..kernel.values.measure import Tolerance
from ..kernel.values.results import MeshResult
from ..kernel.verdict import check, was_stopped
from ..runtime.errors import MeshError
from ..runtime.future import Promise
from ..runtime.wire import codec
from ..widgets.arrivals import Arrivals
from ..widgets.difference import DiffView
from ..widgets.pages import Pages
from ..widgets.stage import NotebookStage
from ..widgets.table import result_html
from .diff import view_of
from .grammar import OnMeshArgs

LAST_RESULT = "_mesh"
"""The name under which the notebook finds the last result."""


@dataclass(slots=True)
class Cell:
    """One `%%on_mesh` cell: read, sent, and to be driven to its end."""

    args: OnMeshArgs
    mesh: Mesh
    run: Run
    drive: Drive
    stage: NotebookStage
    arrivals: Arrivals
    notebook: Mapping[str, object]
    """Its variables."""
    told: MeshError | None = None
    """What a cell in the background was found to have failed with, at its end: the mesh may be another one since."""
    shown: Promise[None] = field(default_factory=Promise[None])
    """Settled when a cell in the background has shown all that it said until its end, and what it came to."""


def checked(cell: Cell, result: MeshResult | None = None) -> MeshResult:
    """The result, if all ranks did well. Raises `MeshError`, with the story of those that did not."""
    if cell.told is not None:
        raise cell.told.with_traceback(None)
    return check(cell.drive, result or result_of(cell), cell.notebook)


def result_of(cell: Cell) -> MeshResult:
    """What came back so far."""
    progress = cell.run.progress
    return MeshResult(
        cell.run.axes,
        cell.run.ranks,
        progress.outcomes,
        progress.seconds,
        progress.lost,
        codec.loads,
        result_html,
        cell.args.out or LAST_RESULT,
        _explored,
    )


def _explored(result: MeshResult) -> object:
    """A result as a live widget where somebody may see one, else a row a rank. (The import takes 0.2 s.)"""
    from IPython.core.getipython import get_ipython

    from ..widgets.base import has_widgets
    from ..widgets.explorer import ResultTable

    return ResultTable(result) if has_widgets(get_ipython()) else result.by_rank()


def shaped(cell: Cell, result: MeshResult) -> MeshResult | DiffView | Pages:
    """A result as `--show` asks for it."""
    show = cell.args.show
    if show == "diff" and result.ok and result.has_values and not was_stopped(cell.drive, result):
        return view_of(cell.mesh, cell.run, Tolerance())
    if show == "first":
        return result.sel(rank=result.ranks[0])
    if show == "tabs":
        return Pages(result)
    return result.by_rank() if show == "table" else result


def is_shown(cell: Cell, result: MeshResult) -> bool:
    return cell.args.show != "none" and cell.args.expr is None and result.has_values


def bundle_of(shown: MeshResult | DiffView | Pages) -> Mapping[str, object]:
    return shown._repr_mimebundle_()  # pyright: ignore[reportPrivateUsage] - what IPython calls
