"""What became of values that were pushed: on which ranks they are, and why not on the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..runtime.errors import DeviceMeshError, MeshError, SupervisionError
from ..runtime.ranges import named


def takers(ranks: Sequence[int], errors: Mapping[int, BaseException]) -> list[int]:
    """The ranks that have the values, or get them later: when they are free, or back from the dead.

    Not those that could not read them.
    """
    return [rank for rank in ranks if isinstance(errors.get(rank, SupervisionError()), SupervisionError)]


def not_taken(names: Iterable[str], ranks: Sequence[int], errors: Mapping[int, BaseException]) -> MeshError:
    """The error of a push that some of these ranks have not taken.

    Example:
        >>> not_taken(["x"], [0, 1, 2], {2: SupervisionError("m.push: rank 2 killed by SIGKILL (signal 9)")})
        DeviceMeshError('x was pushed to ranks 0-1, not to rank 2: m.push: rank 2 killed by SIGKILL (signal 9)')
    """
    have = [rank for rank in ranks if rank not in errors]
    lost = [rank for rank in sorted(errors) if isinstance(errors[rank], SupervisionError)]
    where = f"{named(have)}, not to {named(sorted(errors))}" if have else "no rank"
    why = str(errors[min(errors)]).partition("\n")[0]
    text = f"{', '.join(names)} was pushed to {where}: {why}"
    return DeviceMeshError(text, by_rank=errors, lost=lost) if lost else MeshError(text, by_rank=errors)
