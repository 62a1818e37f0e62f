"""The values of ranks compared, for `%mesh diff` and `--show diff`."""

from __future__ import annotations

from IPython.core.error import UsageError

from ..kernel.mesh import MEASURED, Mesh
from ..kernel.run import Run
from ..kernel.values.measure import Tolerance
from ..runtime.errors import MeshbookError
from ..widgets.difference import DiffView


def view_of(mesh: Mesh, run: Run, tolerance: Tolerance, max_bytes: int = MEASURED) -> DiffView:
    """The values that a run has kept on its ranks, compared."""
    try:
        return DiffView(mesh.compare(run, tolerance, max_bytes))
    except MeshbookError as error:
        first_line = str(error).partition("\n")[0]
        raise UsageError(f"nothing was compared: {first_line}") from None
