"""Healing: ranks that are gone come back in their places, and the process groups of all ranks are made anew.

Survivors keep their processes and all that is in them. Nothing here waits for a rank that is busy: it makes its new
groups when it is done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from .errors import MeshbookError, SpawnError
from .gather import Gather
from .mesh import ActorMesh, ProcMesh, roster_of
from .ranks import steward
from .roster import Roster
from .wire import codec

M = TypeVar("M")

END_SECONDS = 10.0
"""How long a killed rank may take to be gone: the kernel frees its memory first."""

DOOR_SECONDS = 2.0
"""How long a rank may take to open a port before another one is asked: it may hold the GIL, or be stopped."""


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


def heal(mesh: Any, timeout: float = 60.0) -> Healed:
    """Bring back the dead ranks of a mesh in their places: new processes, the same coordinates and environment.

    Actors that the controller had made there are made again, with the arguments they were made with; those that other
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
    return mesh.heal(timeout=timeout)


def heal_mesh(mesh: M, timeout: float = 60.0) -> M:
    """`heal`, for use in an expression: the healed mesh, which is the same one."""
    heal(mesh, timeout)
    return mesh


def heal_roster(roster: Roster, ranks: Sequence[int] | None = None, timeout: float = 60.0) -> Healed:
    """Give these ranks (default: those that are dead) new processes, with the actors that lived there.

    Ranks among them that live are ended first. Then all ranks of the mesh get new process groups.

    Raises:
        SpawnError: one did not come up in `timeout` seconds.
        MeshStopped: the mesh was taken down.
    """
    started = time.monotonic()
    chosen = sorted(roster.dead() if ranks is None else set(ranks))
    _end(roster, [rank for rank in chosen if roster.states[rank].exit is None])
    failed: dict[str, dict[int, BaseException]] = {}
    if chosen:
        roster.revive(chosen)
        roster.wait_ready(timeout, chosen)
        failed = _remake(roster, chosen, timeout)
    late = regroup(roster, timeout) if chosen else ()
    return Healed(tuple(chosen), failed, late, time.monotonic() - started)


def regroup(roster: Roster, timeout: float = 60.0) -> tuple[int, ...]:
    """New process groups on all living ranks; the busy ones, which make theirs when they are done.

    Raises:
        MeshbookError: a rank could not make its groups, or did not say so in `timeout` seconds.
    """
    living = roster.alive()
    if roster.backend == "none" or not living:
        return ()
    busy = tuple(rank for rank in living if roster.states[rank].open_calls)
    roster.store_rank, port = _meeting_place(roster, sorted(living, key=lambda rank: rank in busy))
    roster.generation += 1
    payload = _arguments(port, roster.store_rank, roster.generation)
    _told(roster, [rank for rank in living if rank not in busy], payload).check(timeout)
    _told(roster, busy, payload)
    return busy


def mend(roster: Roster, timeout: float = 10.0) -> str:
    """Make the process groups anew if they are of no use as they are; why they were not, or nothing.

    Ranks that were interrupted, or of which one failed, may have issued different numbers of collectives: the next one
    would be matched with the wrong one, without a word.

    Raises:
        MeshbookError: a rank could not make its groups in time.
    """
    if roster.is_stopped or roster.backend == "none":
        return ""
    if roster.store_rank in roster.dead():
        why = "their store was gone"
    else:
        asked = _asked(roster, roster.alive(), "sequences")
        asked.wait(DOOR_SECONDS)
        why = "they were out of step" if out_of_step(asked.answers) else ""
    if why:
        regroup(roster, timeout)
    return why


def out_of_step(sequences: Mapping[int, Mapping[str, int]]) -> bool:
    """Have ranks, each with its counts of collectives by group, issued different numbers of them in a group?

    Example:
        >>> out_of_step({0: {"world": 5, "pair": 1}, 1: {"world": 5}}), out_of_step({0: {"world": 5}, 1: {"world": 4}})
        (False, True)
    """
    counts: dict[str, set[int]] = {}
    for own in sequences.values():
        for name, count in own.items():
            counts.setdefault(name, set()).add(count)
    return any(len(different) > 1 for different in counts.values())


def release(roster: Roster, ranks: Sequence[int], timeout: float = 1.0) -> dict[int, int]:
    """Break off what these ranks wait for in a collective; by rank, how many connections were shut down.

    Their process groups are of no use until `regroup`.
    """
    known = _asked(roster, roster.alive(), "ports")
    known.wait(timeout)
    ports = sorted({port for own in known.answers.values() for port in own})
    released = _asked(roster, ranks, "release", ports)
    released.wait(timeout)
    return dict(released.answers)


def _meeting_place(roster: Roster, candidates: Sequence[int]) -> tuple[int, int]:
    """A rank that serves a store for the new groups, and its port. The control thread of any will do, if it answers."""
    for rank in candidates:
        told = _asked(roster, [rank], "open_door")
        told.wait(DOOR_SECONDS)
        if rank in told.answers:
            return rank, told.answers[rank]
    raise MeshbookError(f"no rank opens a port for new process groups within {DOOR_SECONDS:g} s")


class _Told(Gather):
    """Who hears how ranks got on with what they were told."""

    def __init__(self, roster: Roster, ranks: Sequence[int], title: str) -> None:
        super().__init__(roster, ranks, title)
        self._ranks = tuple(ranks)

    def check(self, timeout: float) -> None:
        """Wait until all are done. Raises the first error, or `MeshbookError` for those that are not in time."""
        if not self.wait(timeout):
            late = [rank for rank in self._ranks if rank not in self.answers and rank not in self.errors]
            raise MeshbookError(f"{self._title}: {self._roster.name_of(late[0])} did not answer in {timeout:g} s")
        for rank in sorted(self.errors):
            if self._roster.states[rank].exit is None:  # who died meanwhile needs no groups
                raise self.errors[rank]


def _told(roster: Roster, ranks: Sequence[int], payload: codec.Encoded) -> _Told:
    told = _Told(roster, ranks, "new process groups")
    if ranks:
        roster.call(ranks, steward.NUMBER, "regroup", None, payload, told, True)
    return told


def _asked(roster: Roster, ranks: Sequence[int], endpoint: str, *args: Any) -> Gather:
    gather = Gather(roster, ranks, endpoint)
    roster.ask(ranks, steward.NUMBER, endpoint, _arguments(*args), gather)
    return gather


def _arguments(*args: Any) -> codec.Encoded:
    return codec.encode((args, dict[str, Any]()))


def _end(roster: Roster, ranks: Sequence[int]) -> None:
    """Kill ranks and wait until they are gone."""
    if not ranks:
        return
    gone = threading.Event()

    def look(_: int) -> None:
        if all(roster.states[rank].exit is not None for rank in ranks):
            roster.reactor.announce(gone)

    roster.on_change.append(look)
    try:
        roster.kill(ranks)
        roster.reactor.schedule(lambda: look(ranks[0]))
        if not roster.reactor.wait(gone, END_SECONDS):
            raise SpawnError(f"{roster.name_of(ranks[0])} does not end, {END_SECONDS:g} s after SIGKILL")
    finally:
        roster.on_change.remove(look)


def _remake(roster: Roster, ranks: Sequence[int], timeout: float) -> dict[str, dict[int, BaseException]]:
    """Make the actors again; what failed, by name."""
    made: list[tuple[str, _Told]] = []

    def caller(name: str, chosen: Sequence[int]) -> _Told:
        made.append((name, _Told(roster, chosen, f"{name}.__init__")))
        return made[-1][1]

    roster.remake_actors(ranks, caller)
    deadline = time.monotonic() + timeout
    for name, told in made:
        if not told.wait(max(0.0, deadline - time.monotonic())):
            raise SpawnError(f"{name}.__init__ is not done after {timeout:g} s on a rank that was restarted")
    return {name: dict(told.errors) for name, told in made if told.errors}
