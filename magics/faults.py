"""`%mesh restart`, `interrupt` and `unstick`: what is done about ranks that are gone, busy or stuck."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence

from IPython.core.error import UsageError

from ..kernel.failures.interrupted import Interrupted
from ..kernel.mesh import Mesh
from ..kernel.recovery.repairs import mended_text
from ..kernel.recovery.restore import HealedMesh
from ..kernel.stopping.stopped import stop
from ..runtime.controller.long_calls import actors_at_work
from ..runtime.controller.regroup import Unstuck
from ..runtime.controller.roster import Roster
from ..runtime.errors import MeshbookError
from ..runtime.mesh_spec import NAMELESS
from ..runtime.ranges import named, ranks_text
from . import grammar
from .book import Book

_MOMENT = 0.3
"""Seconds for actors that were interrupted to answer."""

_MOST_DEAD = 4

BUILD_AGAIN = "new process groups: what was built on the old ones (DistributedDataParallel, FSDP) is to be built again"

GO_ON = "process groups renewed: models go on with them"


def restart(book: Book, args: grammar.Restart) -> Mesh:
    """Bring ranks back in their places, and say what was done."""
    # `%mesh restart m0` means the mesh of that name: but for `all`, no selector is a plain word.
    is_name = args.mesh is None and args.selector.isidentifier() and args.selector != "all"
    mesh = book.get(args.selector if is_name else args.mesh)
    selector = "" if is_name else args.selector
    # Who is to come back may well be dead: also one in the midst of `2-5`, which cells pass over.
    everyone = tuple(range(mesh.num_ranks))
    ranks = book.select(selector, mesh, also_dead=not mesh.is_down) if selector else everyone
    former = _pids(mesh, ranks)
    try:
        healed = mesh.heal(ranks, replay=args.replay, tell=print)
    except ValueError as mistake:
        raise UsageError(f"%mesh restart: --replay: {mistake}") from None
    except MeshbookError as error:
        live = all(mesh.roster.states[rank].exit is None for rank in ranks)
        what = f"{_are(ranks)} as before, and not restarted" if live else f"{named(ranks)} did not come back"
        raise UsageError(f"{what}: {error}") from None
    except KeyboardInterrupt:
        is_undone = bool(former) and _pids(mesh, ranks) == former
        raise Interrupted(_undone(ranks) if is_undone else half_done(mesh, ranks)) from None
    print("\n".join([restart_text(healed), *_died_again(mesh, ranks)]))
    return mesh


def _died_again(mesh: Mesh, ranks: Sequence[int]) -> list[str]:
    """One line for each end of ranks that came back, and did not live to be set up."""
    dead = [rank for rank in ranks if rank in mesh.roster.dead()]
    ends = [mesh.roster.why_dead(rank).partition("\n")[0] for rank in dead[:_MOST_DEAD]]
    lines = [f"{end}, as it was set up again" for end in ends]
    return [*lines, *([f"so did {len(dead) - _MOST_DEAD} more"] if len(dead) > _MOST_DEAD else [])]


def _pids(mesh: Mesh, ranks: Sequence[int]) -> dict[int, int]:
    """The processes of those that live."""
    states = mesh.roster.states
    return {rank: states[rank].pid for rank in ranks if states[rank].exit is None and not states[rank].is_doomed}


def _undone(ranks: Sequence[int]) -> str:
    return f"stopped before anything was done: `%mesh restart {ranks_text(ranks)}` begins again"


def half_done(mesh: Mesh, ranks: Sequence[int]) -> str:
    """Of ranks that get new processes, where these were not waited for."""
    states = mesh.roster.states
    dead = [rank for rank in ranks if states[rank].exit is not None or states[rank].is_doomed]
    again = f"`%mesh restart {ranks_text(ranks)}` begins again"
    if dead:
        return f"{named(dead)} did not come back: {again}"
    return f"{_are(ranks)} back, but not set up to the end: cells were not replayed there; {again}"


def interrupt(book: Book, args: grammar.Interrupt) -> None:
    """Interrupt, release or kill ranks, and say which."""
    mesh, ranks = book.chosen_of_all(args.mesh, args.selector)
    if args.kill:
        mesh.kill(ranks)
        print(f"killed: {named(ranks)}; `%mesh restart @dead` brings back what is dead")
    elif args.hard:
        _unstick(mesh, ranks, reinit=True, how="interrupted by `%mesh interrupt --hard`")
    else:
        stop(mesh.running(), ranks, "interrupted by `%mesh interrupt`")
        states = mesh.states()
        busy = {rank for rank in ranks if states[rank] == "busy"}
        told = mesh.interrupt(ranks)
        running = [rank for rank, was_busy in told.items() if was_busy]
        answers = mesh.interrupt_actors(ranks)
        struck = {rank: titles for rank, titles in answers.items() if titles}
        left = _left_at_work(mesh, ranks, struck)
        deaf = sorted((busy - told.keys()) | (set(left) - answers.keys()))
        print("\n".join(interrupted_lines(running, struck, left, deaf)))
        if struck and (said := mended_text(mesh)):  # cells look to that themselves, as they end
            print(said)


def interrupted_lines(
    running: Sequence[int], struck: Mapping[int, Sequence[str]], left: Sequence[int], deaf: Sequence[int] = ()
) -> list[str]:
    """What an interrupt did: to cells, to the endpoints of actors that were at work, and which ranks go on.

    Those in `deaf` have not even answered: mostly, C code runs there that holds the interpreter.

    Example:
        >>> interrupted_lines([0, 1], {1: ["trainer.step"]}, [])
        ['interrupted: ranks 0-1', 'interrupted: rank 1 in trainer.step']
        >>> interrupted_lines([], {}, [], [3])
        ['rank 3 is asked to stop, and does not react yet: `%mesh interrupt 3 --kill` ends it']
        >>> interrupted_lines([], {}, [])
        ['no rank was busy']
    """
    lines = [f"interrupted: {named(running)}"] if running else []
    by_titles: dict[tuple[str, ...], list[int]] = {}
    for rank, titles in struck.items():
        by_titles.setdefault(tuple(titles), []).append(rank)
    lines += [f"interrupted: {named(ranks)} in {', '.join(titles)}" for titles, ranks in by_titles.items()]
    if deaf:
        end = f"`%mesh interrupt {ranks_text(deaf)} --kill` ends {_plural(deaf, 'it', 'them')}"
        lines.append(f"{_are(deaf)} asked to stop, and {_plural(deaf, 'does', 'do')} not react yet: {end}")
    if left := [rank for rank in left if rank not in deaf]:
        lines.append(
            f"actors on {named(left)} go on, in what no interrupt ends: `%mesh unstick {ranks_text(left)}` frees them "
            f"from a collective, `%mesh stacks` tells where they are, `%mesh restart {ranks_text(left)}` ends them"
        )
    return lines or ["no rank was busy"]


def actors_go_on(mesh: Mesh) -> str:
    """A line about ranks that work for calls of actors, as nobody waits for these any more; empty where none does."""
    busy = actors_at_work(mesh.roster)
    if not busy:
        return ""
    means = f"`%mesh interrupt -m {mesh.name}` interrupts them"
    if stopped := [rank for rank in busy if mesh.desk.stop_of(rank)]:
        return f"actors on {named(stopped)} of {mesh.name} are stopped still: `%mesh debug` goes on there, {means}"
    return f"actors on {named(busy)} of {mesh.name} go on: {means}, `%mesh stacks` tells where they are"


def own_actors_go_on(roster: Roster) -> str:
    """The same of a mesh that the notebook has made by `spawn_procs`, which the magics do not know."""
    busy = actors_at_work(roster)
    means = "`stop()` of their mesh ends them, `python -m meshbook.debug stacks` tells where they are"
    of = "an unnamed mesh" if roster.name == NAMELESS else roster.name
    return f"actors on {named(busy)} of {of} go on: {means}" if busy else ""


def _left_at_work(mesh: Mesh, ranks: Collection[int], struck: Collection[int]) -> list[int]:
    """Those of the ranks whose actors are at work still; those that were interrupted have a moment to answer."""
    deadline = time.monotonic() + (_MOMENT if struck else 0)
    while (left := [rank for rank in actors_at_work(mesh.roster) if rank in ranks]) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


def unstick(book: Book, args: grammar.Unstick) -> None:
    """Free ranks from collectives, and say which."""
    mesh, ranks = book.chosen_of_all(args.mesh, args.selector)
    _unstick(mesh, ranks, reinit=not args.no_reinit, how="freed by `%mesh unstick`")


def _unstick(mesh: Mesh, ranks: Sequence[int], reinit: bool, how: str) -> None:
    states = mesh.states()
    busy = [rank for rank in ranks if states[rank] in ("busy", "stuck")]
    places = mesh.where(busy) if busy else {}
    stop(mesh.running(), busy, how)
    try:
        print(unstick_text(mesh.unstick(ranks, reinit=reinit), places))
    except MeshbookError as error:
        raise UsageError(str(error)) from None


def restart_text(healed: HealedMesh) -> str:
    """What a restart did, in a few lines.

    Example:
        >>> from meshbook.runtime.healing import Healed
        >>> process = Healed((3,), {}, (1,), 0.03)
        >>> cells = ("cell 2", "cell 4"), ("cell 5",), {"cell 6": (3,)}
        >>> print(restart_text(HealedMesh(process, *cells, ("x",), ("pandas",), 3.1)))
        rank 3 is back in 3.1 s: replayed cells 2, 4; of cell 5 only imports and definitions
        cell 6 failed there (rank 3); `%%on_mesh 3` runs it again
        not pushed again: x: `%mesh push x`
        `%mesh up ... --import pandas` has that loaded before the next restart
        rank 1 is busy and gets the new process groups when it is done
    """
    head = f"{_are(healed.ranks)} back in {healed.seconds:.1f} s: {replayed_text(healed)}"
    return "\n".join([head, *trouble_lines(healed)])


def replayed_text(healed: HealedMesh) -> str:
    """Example: `replayed cell 2; of cell 5 only imports and definitions; of cell 6 nothing; not called again: f()`."""
    calls = [name for name in healed.left_out if name.endswith("()")]
    whole, parts = _cells(healed.replayed), _cells(healed.parts)
    left_out = _cells([name for name in healed.left_out if name not in calls])
    replayed = [f"replayed {whole}"] if whole else []
    replayed += [f"of {parts} only imports and definitions"] if parts else []
    replayed += [f"of {left_out} nothing"] if left_out and (replayed or healed.failed) else []
    called = [f"not called again: {', '.join(calls)}"] if calls else []
    return "; ".join([*(replayed or ["nothing was replayed"]), *called])


def trouble_lines(healed: HealedMesh) -> list[str]:
    """What did not come back, or comes later."""
    lines: list[str] = []
    for cell, ranks in healed.failed.items():
        why = f": {healed.reasons[cell]}" if healed.reasons.get(cell) else ""
        again = ranks_text(healed.together.get(cell, ranks))
        maker = healed.wanting.get(cell)
        what = f"{maker} makes it, and has not run there" if maker else f"`%%on_mesh {again}` runs it again"
        if cell in healed.fatal:
            what = "`%mesh restart @dead` goes without it"
        lines.append(f"{cell} failed there ({named(ranks)}){why}; {what}")
    for name, errors in healed.process.failed.items():
        lines.append(f"{name} could not be made again: {_first_line(next(iter(errors.values())))}")
    for name, ranks in healed.process.making.items():
        lines.append(f"{name}.__init__ is not done yet ({named(ranks)}): calls wait for it")
    if healed.unpushed:
        lines.append(f"not pushed again: {', '.join(healed.unpushed)}: `%mesh push {' '.join(healed.unpushed)}`")
    if healed.heavy:
        lines.append(f"`%mesh up ... --import {','.join(healed.heavy)}` has that loaded before the next restart")
    if healed.mended:
        lines.append(healed.mended)
    return [*lines, *_late(healed.process.late)]


def unstick_text(done: Unstuck, places: Mapping[int, str]) -> str:
    """What un-sticking did, in a few lines.

    Example:
        >>> print(unstick_text(Unstuck((0, 1), (2,), (2,)), {0: "cell 3 line 2", 1: "cell 3 line 2"}))
        ranks 0-1 are free; they were at cell 3 line 2
        rank 2 is still busy: `%mesh interrupt --kill` ends it
        new process groups: what was built on the old ones (DistributedDataParallel, FSDP) is to be built again
        rank 2 is busy and gets the new process groups when it is done
    """
    by_place: dict[str, list[int]] = {}
    for rank in done.freed:
        by_place.setdefault(places.get(rank, ""), []).append(rank)
    lines = [
        f"{_are(ranks)} free" + (f"; {_plural(ranks, 'it was', 'they were')} at {at}" if at else "")
        for at, ranks in by_place.items()
    ]
    if done.busy:
        lines.append(f"{_are(done.busy)} still busy: `%mesh interrupt --kill` ends {_plural(done.busy, 'it', 'them')}")
    if not lines:
        lines.append("no rank was busy")
    if done.late is not None:
        lines += [GO_ON if done.is_renewed else BUILD_AGAIN, *_late(done.late)]
    return "\n".join(lines)


def _late(ranks: Sequence[int]) -> list[str]:
    if not ranks:
        return []
    gets, done = _plural(ranks, "gets", "get"), _plural(ranks, "it is", "they are")
    return [f"{_are(ranks)} busy and {gets} the new process groups when {done} done"]


def _are(ranks: Sequence[int]) -> str:
    return f"{named(ranks)} {_plural(ranks, 'is', 'are')}"


def _plural(many: Sequence[object], one: str, more: str) -> str:
    return more if len(many) > 1 else one


def _cells(names: Sequence[str]) -> str:
    """Cells by their numbers and labels, each once: a loop of `%on_mesh` lines is many runs of one cell.

    Example:
        >>> _cells(["cell 1", "cell 3", "cell 3", "load"])
        'cells 1, 3, load'
    """
    words = list(dict.fromkeys(name.removeprefix("cell ") for name in names))
    return f"{_plural(words, 'cell', 'cells')} {', '.join(words)}" if words else ""


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
