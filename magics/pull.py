"""Values of ranks that come to the notebook: `%mesh pull`, and `--get` of a cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from IPython.core.error import UsageError

from ..kernel.mesh import PULL_LIMIT, Mesh
from ..kernel.values.stacking import stacked
from ..runtime.errors import ActorError, MeshbookError
from ..runtime.wire.codec import DecodeError, EncodeError


def pull(mesh: Mesh, name: str, ranks: Sequence[int], max_bytes: int = PULL_LIMIT) -> dict[int, Any]:
    """The value of this name on each of these ranks.

    Raises `UsageError`, one line, where it is not there, too large, or of a class that the notebook does not have.
    """
    try:
        return mesh.pull(name, ranks, max_bytes)
    except MeshbookError as error:
        why = error.exception if isinstance(error, ActorError) else None
        told = str(error)
        if isinstance(why, NameError):
            told = f"{why}: `%mesh who` lists what ranks hold"
        elif isinstance(why, EncodeError):
            where = str(error).partition(" on ")[2].partition(" failed")[0]
            told = f"{name} stays on {where}: {why}"
        raise UsageError(told.partition("\n")[0]) from None
    except DecodeError as error:
        raise UsageError(f"{name} cannot come to the notebook: it {error}") from None


def gathered(name: str, values: Mapping[int, Any], how: str) -> object:
    """The values as a list, by rank (`dict`), or as one array with the ranks as its first axis (`stack`).

    Raises `UsageError` where they cannot be stacked.
    """
    if how == "dict":
        return dict(values)
    in_order = [values[rank] for rank in sorted(values)]
    if how != "stack":
        return in_order
    try:
        return stacked({rank: values[rank] for rank in sorted(values)})
    except ValueError as misfit:
        raise UsageError(f"{name} cannot be stacked: {misfit}; --as list takes all") from None
