"""Bringing a rank that came new to what the others know: pushed names, and the cells that set up."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..runtime.errors import MeshbookError
from ..runtime.gather import Gather
from ..runtime.healing import Healed
from ..runtime.resize import Resized
from ..runtime.wire.codec import EncodeError
from .journal import Pushed, Replay, in_order
from .run import Run

if TYPE_CHECKING:
    from .mesh import Mesh


_MOMENT = 5.0
"""Seconds for values to arrive, once all cells are done."""


@dataclass(frozen=True, slots=True)
class HealedMesh:
    """What was done to bring ranks back."""

    process: Healed
    replayed: tuple[str, ...]
    """The cells that ran again on them, by name."""
    parts: tuple[str, ...]
    """The cells of which only imports and definitions did."""
    failed: Mapping[str, tuple[int, ...]]
    """The cells that failed there, or took too long, with the ranks."""
    unpushed: tuple[str, ...]
    """Pushed names that could not be pushed again."""
    seconds: float

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that are new."""
        return self.process.ranks


@dataclass(frozen=True, slots=True)
class ResizedMesh:
    """What was done to resize a mesh."""

    process: Resized
    healed: HealedMesh
    """What the ranks that have new processes were brought to know."""
    seconds: float


def restore(
    mesh: Mesh,
    healed: Healed,
    plan: Sequence[Replay],
    pushed: Sequence[tuple[str, Pushed]],
    timeout: float,
) -> HealedMesh:
    """Push and replay on the ranks that are new, in the order in which that was done.

    Cells that are not done after `timeout` seconds are interrupted.
    """
    started = time.monotonic()
    runs: list[tuple[Replay, Run]] = []
    pushes: list[tuple[str, Gather | None]] = []
    with mesh.desk.serving():  # nobody has asked to stop at the breakpoints of old cells once more
        for step in in_order(plan, pushed):
            ranks = step.ranks if isinstance(step, Replay) else step[1].ranks
            chosen = [rank for rank in healed.ranks if rank in ranks]
            if chosen and isinstance(step, Replay):
                run = mesh.run(step.source, chosen, name=step.name, first_line=step.first_line, replay=step)
                runs.append((step, run))
            elif chosen and not isinstance(step, Replay):
                pushes.append((step[0], _push(mesh, *step, chosen)))
        if runs:
            mesh.desk.leave(healed.ranks)
    _wait(mesh, [run for _, run in runs], timeout)
    unpushed = [name for name, push in pushes if push is None or not push.wait(_MOMENT) or push.errors]
    return HealedMesh(
        healed,
        tuple(replay.name for replay, run in runs if not replay.is_part and not _failed(run)),
        tuple(replay.name for replay, run in runs if replay.is_part and not _failed(run)),
        {replay.name: failed for replay, run in runs if (failed := _failed(run))},
        tuple(dict.fromkeys(unpushed)),
        healed.seconds + time.monotonic() - started,
    )


def _push(mesh: Mesh, name: str, what: Pushed, ranks: Sequence[int]) -> Gather | None:
    """Send it, behind the cells that were sent before; None where that cannot be."""
    if not what.is_kept:
        return None
    try:
        return mesh.giving({name: what.value}, ranks)
    except (EncodeError, MeshbookError):  # it has changed since, or the rank is gone again
        return None


def _wait(mesh: Mesh, runs: Sequence[Run], timeout: float) -> None:
    deadline = time.monotonic() + timeout
    for run in runs:
        try:
            run.finished.get(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            mesh.interrupt(run.owing, run.call)
            try:
                run.finished.get(1.0)
            except TimeoutError:
                run.abandon()


def _failed(run: Run) -> tuple[int, ...]:
    return tuple(sorted({*run.progress.failed, *run.progress.lost}))
