"""Healing: ranks that are gone come back in their places, and the process groups of all ranks are made anew.

Survivors keep their processes and all that is in them. Nothing here waits for a rank that is busy: it makes its new
groups when it is done.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .controller.regroup import regroup, wait_until
from .controller.remaking import Remade, begin_remaking, finish_remaking
from .controller.roster import Roster
from .controller.spares import keep_spares
from .errors import SpawnError, checks_for_caller
from .mesh import ActorMesh, ProcMesh, roster_of
from .wire.deferred import untorn

M = TypeVar("M")

END_SECONDS = 10.0
"""How long a killed rank may take to be gone: the kernel frees its memory first."""

_LAST_SECONDS = 2.0
"""How long one may take that nobody has waited for."""


@dataclass(frozen=True, slots=True)
class Healed:
    """What was done to a mesh."""

    ranks: tuple[int, ...]
    """The ranks that have a new process."""
    failed: dict[str, dict[int, BaseException]]
    """By name, the actors that could not be made again there, and why."""
    late: tuple[int, ...]
    """Busy ranks, which get the new process groups when they are done with what they do."""
    seconds: float
    making: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """By name, the actors whose constructors are not done there yet: calls wait for them."""


@checks_for_caller
def heal(mesh: Any, timeout: float = 60.0) -> Healed:
    """Bring back the dead ranks of a mesh in their places: new processes, the same coordinates and environment.

    Actors that the controller had made there are made again, with the arguments as they were then; those that other
    ranks had made are not. All ranks get new process groups; what was built on old ones (`DistributedDataParallel`,
    say) is to be built again. A mesh of a notebook also gets its set-up cells replayed (see `kernel.mesh.Mesh.heal`).

    Raises:
        SpawnError: a rank did not come up in `timeout` seconds.
        MeshStopped: the mesh was taken down.

    Example:
        >>> from meshbook.runtime import Actor, endpoint, this_host
        >>> class Counter(Actor):
        ...     @endpoint
        ...     def count(self):
        ...         return 1
        >>> with this_host().spawn_procs({"dp": 2}) as procs:
        ...     counters = procs.spawn("counters", Counter)
        ...     sum(counters.count.call().get().values()), heal(procs).ranks
        (2, ())
    """
    if isinstance(mesh, ProcMesh | ActorMesh):
        roster = roster_of(mesh)
        places = set(mesh._shape.ranks())  # pyright: ignore[reportPrivateUsage] - meshes keep all to themselves
        return heal_roster(roster, [rank for rank in roster.dead() if rank in places], timeout)
    if not hasattr(mesh, "heal"):
        raise TypeError(f"heal takes a mesh, not {mesh!r}")
    return mesh.heal(timeout=timeout)


@checks_for_caller
def heal_mesh(mesh: M, timeout: float = 60.0) -> M:
    """`heal`, for use in an expression: the healed mesh, which is the same one."""
    heal(mesh, timeout)
    return mesh


def heal_roster(roster: Roster, ranks: Sequence[int] | None = None, timeout: float = 60.0) -> Healed:
    """Give these ranks (default: those that are dead) new processes, with the actors that lived there.

    Ranks among them that live are ended first. Then all ranks of the mesh get new process groups.

    Raises:
        SpawnError: one did not come up in `timeout` seconds; all of them are dead then.
        MeshStopped: the mesh was taken down.
    """
    started = time.monotonic()
    chosen = sorted(roster.dead() if ranks is None else set(ranks))
    _end(roster, [rank for rank in chosen if roster.states[rank].exit is None])
    made, late = Remade({}, {}), ()
    if chosen:
        try:
            roster.revive(chosen)
            roster.wait_ready(timeout, chosen)
            late = regroup(roster)  # before there are actors: their constructors may ask for their rank
            begun = begin_remaking(roster, chosen)
        except BaseException:  # also Ctrl-C: ranks that live and have no actors would be taken for sound
            give_up(roster, chosen)
            raise
        try:
            made = finish_remaking(roster, chosen, begun)
        finally:
            late = regroup(roster) if roster.groups.is_cut else late
    keep_spares(roster)  # not before: their imports would slow down the others
    return Healed(tuple(chosen), made.failed, late, time.monotonic() - started, made.making)


def check_room(roster: Roster, ranks: Sequence[int]) -> None:
    """Raises `SpawnError` where the living ones among ranks that are to be healed would end, and not come back."""
    living = [rank for rank in ranks if roster.states[rank].exit is None]
    if living:
        hosts = {rank: roster.specs[rank].host for rank in ranks}
        again = [hosts.pop(rank) for rank in living]
        roster.crew.check_room([*hosts.values()], again)


@untorn
def give_up(roster: Roster, ranks: Sequence[int]) -> None:
    """Kill ranks that did not all come, and wait until they are gone."""
    roster.kill(ranks)
    _see_off(roster, ranks)


@untorn  # people press again: what is sent next is not for them
def _see_off(roster: Roster, ranks: Sequence[int]) -> None:
    wait_until(roster, lambda: _are_gone(roster, ranks), _LAST_SECONDS)


def _are_gone(roster: Roster, ranks: Sequence[int]) -> bool:
    return all(roster.states[rank].exit is not None for rank in ranks)


def _end(roster: Roster, ranks: Sequence[int]) -> None:
    """Kill ranks that are to be replaced, and wait until they are gone; so far also where that is interrupted."""
    if not ranks:
        return
    try:
        roster.kill(ranks, for_good=False)
        is_done = wait_until(roster, lambda: _are_gone(roster, ranks), END_SECONDS)
    except KeyboardInterrupt:
        if any(roster.states[rank].is_doomed for rank in ranks):
            _see_off(roster, ranks)
        raise
    if not is_done:
        raise SpawnError(f"{roster.name_of(ranks[0])} does not end, {END_SECONDS:g} s after SIGKILL")
