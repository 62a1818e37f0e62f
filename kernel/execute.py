"""`Mesh.execute`: a function runs on all ranks of a mesh, by the rules of a cell; its values come back."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ..runtime.errors import DeviceMeshError, SupervisionError
from ..runtime.ranges import ranks_text
from ..runtime.shape import Shape
from ..runtime.values import ValueMesh
from ..runtime.wire import codec
from .drive import Drive
from .driver import drive_by
from .failures.story import noted, tell
from .output.teller import Teller
from .stopping.patience import Patience
from .stopping.stop_button import StopButton
from .values.results import MeshResult
from .verdict import check, note_failed, stopped_by, was_stopped
from .waiting.hangs import watches_of

if TYPE_CHECKING:
    from .mesh import Mesh


class Terse(Teller):
    """Tells on stderr what ranks hang in. In a script, what they say is in their logs, and errors tell of the rest."""

    def note(self, ranks: Sequence[int], mark: str, line: str) -> None:
        print(f"{ranks_text(ranks)} {mark} {line}", file=sys.stderr)


_make_teller: Callable[[Sequence[int]], Teller] | None = None


def tell_by(make: Callable[[Sequence[int]], Teller] | None) -> None:
    """How to make who tells the reader of a call on these ranks; None: there is no notebook."""
    global _make_teller
    _make_teller = make


def execute(mesh: Mesh, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> ValueMesh[Any]:
    """See `Mesh.execute`."""
    _check_whole(mesh)
    with ExitStack() as stack:
        button = StopButton()
        run = mesh.submit(function, args, kwargs, before=lambda: stack.enter_context(button))
        teller: Teller = Terse() if _make_teller is None else _make_teller(run.ranks)
        watches = watches_of(mesh, run, teller.note, is_bare=_make_teller is None)
        driven = Drive(mesh, run, teller, Patience(time.monotonic()), watches=watches)
        drive_by(button, driven)
    progress = run.progress
    result = MeshResult(run.axes, run.ranks, progress.outcomes, progress.seconds, progress.lost, codec.loads)
    note_failed(driven, result)
    if was_stopped(driven, result):
        stop = stopped_by(driven, result)
        raise stop.plain() if _make_teller is None else stop
    if driven.mended and result.ok:
        teller.note(run.ranks, "↻", driven.mended)
    return ValueMesh(Shape.row_major(mesh.axes), check(driven, result).values())


def _check_whole(mesh: Mesh) -> None:
    """Raises `DeviceMeshError` if ranks are gone."""
    if gone := mesh.roster.dead():
        why = {rank: mesh.roster.why_dead(rank).partition("\n")[0] for rank in gone}
        lost = {rank: f"{text}; nothing was run" for rank, text in why.items()}
        story = tell(mesh.axes, range(mesh.num_ranks), {}, lost)
        errors = {rank: SupervisionError(text) for rank, text in why.items()}
        raise noted(DeviceMeshError(story.summary, lost=gone, by_rank=errors), story)
