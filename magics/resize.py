"""`%mesh resize`: a living mesh gets other sizes, and a few lines say who came, who went and what is to be done."""

from __future__ import annotations

from collections.abc import Sequence

from IPython.core.error import UsageError

from ..kernel.failures.interrupted import Interrupted
from ..kernel.mesh import Mesh
from ..kernel.recovery.restore import HealedMesh, ResizedMesh
from ..runtime.controller.reshape import Reshape
from ..runtime.controller.resize import Resized
from ..runtime.errors import MeshbookError
from ..runtime.ranges import coords_text, ranks_text
from ..runtime.ranks.place import axes_text, coordinates
from . import faults, grammar
from .book import Book
from .terms import SelectorError

_MOST_PIDS = 16


def resize(book: Book, args: grammar.Resize) -> Mesh:
    """Grow or shrink a mesh, and say what was done."""
    mesh = book.get(args.mesh)
    former, dead = mesh.axes, mesh.roster.dead()
    try:
        resized = mesh.resize(args.axes, replay=args.replay, timeout=args.ready_timeout)
    except (ValueError, MeshbookError) as error:
        raise UsageError(f"%mesh resize: {error}") from None
    except KeyboardInterrupt:
        plan = Reshape.of(former, args.axes)
        came = [*plan.added, *plan.renumbered(dead)] if mesh.axes == plan.new else mesh.roster.dead()
        raise Interrupted(_half_done(mesh, sorted(came))) from None
    print(resize_text(resized))
    if mesh.roster.groups.backend != "none" and (resized.process.ranks or resized.process.dropped):
        print(faults.BUILD_AGAIN)
    _check_slice(book, mesh)
    return mesh


def _half_done(mesh: Mesh, came: Sequence[int]) -> str:
    """What a resize that was not waited for has come to."""
    told = f"stopped; the sizes are {axes_text(mesh.axes)}"
    return f"{told}; {faults.half_done(mesh, came)}" if came else told


def _check_slice(book: Book, mesh: Mesh) -> None:
    """The slice of `%mesh use` may not be there any more."""
    try:
        book.select("", mesh)
    except SelectorError:
        print(f"{mesh.name}[{book.slice}] is gone: cells run on all of {mesh.name} again")
        book.slice = ""


def resize_text(done: ResizedMesh) -> str:
    """What a resize did, in a few lines.

    Example:
        >>> from meshbook.runtime.healing import Healed
        >>> from meshbook.runtime.controller.resize import Dropped
        >>> plan = Reshape.of({"dp": 2, "tp": 2}, {"dp": 1, "tp": 3})
        >>> gone = tuple(Dropped(rank, {"dp": 1, "tp": rank - 2}, 70 + rank, was_dead=False) for rank in (2, 3))
        >>> healed = HealedMesh(Healed((2,), {}, (), 0.1), ("cell 1",), (), {}, (), (), 0.1)
        >>> print(resize_text(ResizedMesh(Resized(plan, (2,), gone, ("counters",), {}, 0.1, ("b",)), healed, 0.15)))
        resized in 0.1 s: dp=2 tp=2 is dp=1 tp=3
        dropped, with what they knew: ranks 2-3 (dp=1,tp=0-1), pids 72 73
        given back: host b, whose agent ends
        stopped, as ranks have other numbers: counters: spawn them again
        rank 2 is new (dp=0,tp=2): replayed cell 1
    """
    plan, healed = done.process.plan, done.healed
    if plan.old == plan.new and not healed.ranks:
        return f"nothing to do: the sizes are {axes_text(plan.new)}"
    lines = [f"resized in {done.seconds:.1f} s: {axes_text(plan.old)} is {axes_text(plan.new)}"]
    if done.process.dropped:
        lines.append(f"dropped, with what they knew: {_dropped_text(done.process)}")
    if names := done.process.given_back:
        whose = "whose agents end" if names[1:] else "whose agent ends"
        lines.append(f"given back: host{'s' * (len(names) > 1)} {', '.join(names)}, {whose}")
    if moved := [rank for rank, number in plan.kept.items() if rank != number]:
        numbers = ranks_text(plan.kept[rank] for rank in moved)
        lines.append(f"{faults.named(moved)} stayed and now {'have numbers' if moved[1:] else 'has number'} {numbers}")
    if done.process.stopped:
        lines.append(f"stopped, as ranks have other numbers: {', '.join(done.process.stopped)}: spawn them again")
    lines += _new_lines(plan, healed)
    return "\n".join(lines)


def _dropped_text(process: Resized) -> str:
    """Example: `ranks 2-3 (dp=1), pids 72 73`."""
    ranks = [each.rank for each in process.dropped]
    pids = [str(each.pid) for each in process.dropped if each.pid]
    where = coords_text([each.coord for each in process.dropped], process.plan.old)
    named = f", pid{'s' if pids[1:] else ''} {' '.join(pids)}" if 0 < len(pids) <= _MOST_PIDS else ""
    return f"{faults.named(ranks)} ({where}){named}"


def _new_lines(plan: Reshape, healed: HealedMesh) -> list[str]:
    """Who is new, and what it was brought to know."""
    if not healed.ranks:
        return []
    back = [rank for rank in healed.ranks if rank not in plan.added]
    what = "back" if not plan.added else f"new{' (or back)' if back else ''}"
    where = coords_text([coordinates(rank, plan.new) for rank in healed.ranks], plan.new)
    head = f"{faults.named(healed.ranks)} {'are' if healed.ranks[1:] else 'is'} {what} ({where})"
    return [f"{head}: {faults.replayed_text(healed)}", *faults.trouble_lines(healed)]
