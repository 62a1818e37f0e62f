"""Elastic meshes: a living mesh grows or shrinks along its axes. Ranks that stay keep their processes and their state.

Who stays keeps its coordinates. All hear of the new sizes, then they get new process groups.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from ..engines.spec import RankSpec, Seat, environment, standings
from ..errors import MeshError, SpawnError
from ..healing import END_SECONDS, give_up
from ..numbers import STEWARD, new_mesh
from ..orders import Order
from ..ranks.place import coordinates
from ..system.devices import choose_device, device_at
from ..wire import codec
from ..wire.deferred import untorn
from .gather import Gather
from .regroup import REGROUP_SECONDS, REGROUP_SECONDS_A_RANK, regroup, wait_until
from .remaking import Remade, Remaking, begin_remaking, finish_remaking
from .reshape import Reshape
from .roster import Roster
from .spares import keep_spares

IDLE_SECONDS = 0.5
"""How long ranks that are busy may take to be done: an actor that was just spawned is being made."""

_GRACE = 2.0
"""Seconds that ranks which are dropped and idle have to leave."""

_MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class Dropped:
    """A rank that was ended because its place is not in the mesh any more."""

    rank: int
    """Its number in the mesh as it was."""
    coord: Mapping[str, int]
    pid: int
    was_dead: bool


@dataclass(frozen=True, slots=True)
class Resized:
    """What was done to a mesh. Ranks are numbered as in the new grid."""

    plan: Reshape
    ranks: tuple[int, ...]
    """The ranks that have a new process: those that came, and those that stay and were dead."""
    dropped: tuple[Dropped, ...]
    stopped: tuple[str, ...]
    """The names of actors that were stopped because their ranks have other numbers."""
    failed: dict[str, dict[int, BaseException]]
    """By name, the actors that could not be made again on ranks that were dead, and why."""
    seconds: float
    given_back: tuple[str, ...] = ()
    """The names of hosts that were given back, as none of its ranks is on them any more."""
    making: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """By name, the actors whose constructors are not done yet on ranks that were dead."""


def resize_roster(roster: Roster, sizes: Mapping[str, int], timeout: float = 60.0) -> Resized:
    """Give axes of a mesh these sizes; those not named keep theirs.

    Ranks that are dropped and idle have 2 seconds to leave. Dead ranks that stay come back, as in `heal`.
    Where ranks get other numbers (an axis changes that is not the outermost), actors that users made are stopped, and
    views of the mesh as it was raise `MeshStopped`.

    Raises:
        ValueError: there is no such axis, a size is below 1, or there are not so many hosts or GPUs.
        MeshError: a rank that is to stay is busy; nothing was done.
        SpawnError: there is no room for so many ranks, and nothing was done; or one did not come up in `timeout`
            seconds, and is dead in a mesh that has its new size. So are those that come when Ctrl-C ends the wait.
        MeshStopped: the mesh was taken down.
    """
    started = time.monotonic()
    plan = Reshape.of(roster.axes, sizes)
    _check_idle(roster, plan)
    seats = _seats(roster, plan)
    roster.crew.check_room([seats[rank].host for rank in plan.added])
    dropped = tuple(_dropped(roster, plan))
    _dismiss(roster, plan)
    specs = _specs(roster, plan, seats)
    stopped = () if plan.keeps_numbers else tuple(made.name for made in list(roster.births.made.values()))
    told = _reshape(roster, plan, specs)
    new = tuple(roster.dead())
    begun = _settle(roster, plan, told, new, timeout)
    made = _remake(roster, new, begun)
    given_back = tuple(roster.crew.settle(plan.new))
    keep_spares(roster)
    return Resized(plan, new, dropped, stopped, made.failed, time.monotonic() - started, given_back, made.making)


def _check_idle(roster: Roster, plan: Reshape) -> None:
    def busy() -> list[int]:
        return [rank for rank in plan.kept if roster.states[rank].name not in ("idle", "dead")]

    roster.look_at_vitals(time.monotonic())
    if not wait_until(roster, lambda: not busy(), IDLE_SECONDS) and (found := busy()):
        named = ", ".join(f"{roster.name_of(rank)} is {roster.states[rank].name}" for rank in found[:_MOST_NAMED])
        more = f" and {len(found) - _MOST_NAMED} more are not idle" if len(found) > _MOST_NAMED else ""
        raise MeshError(f"cannot resize now: {named}{more}: wait, or stop what runs with `%mesh interrupt`")


def _dropped(roster: Roster, plan: Reshape) -> Iterable[Dropped]:
    for rank in plan.dropped:
        state = roster.states[rank]
        yield Dropped(rank, coordinates(rank, plan.old), state.pid, state.exit is not None)


def _dismiss(roster: Roster, plan: Reshape) -> None:
    """End the ranks that are dropped, and wait until they are gone; also where that is interrupted."""

    def is_done() -> bool:
        return all(roster.states[rank].exit is not None for rank in plan.dropped)

    try:
        roster.dismiss(plan)
        if not wait_until(roster, is_done, _GRACE):
            roster.kill([rank for rank in plan.dropped if roster.states[rank].exit is None])
            if not wait_until(roster, is_done, END_SECONDS):
                raise SpawnError(f"a rank does not end, {END_SECONDS:g} s after SIGKILL: the mesh was not resized")
    except KeyboardInterrupt:
        if any(roster.states[rank].is_doomed for rank in plan.dropped):
            give_up(roster, plan.dropped)
        raise


def _seats(roster: Roster, plan: Reshape) -> Sequence[Seat]:
    """Where all ranks of the new grid are to live."""
    seats = roster.engine.reseat(plan.new, {number: roster.specs[rank].seat for rank, number in plan.kept.items()})
    if roster.specs[0].device.startswith("cuda") and not roster.specs[0].shared_gpus:
        choose_device("cuda", max(seat.local_world_size for seat in seats), roster.engine.num_gpus())
    return seats


def _specs(roster: Roster, plan: Reshape, seats: Sequence[Seat]) -> list[RankSpec]:
    """All ranks of the new grid."""
    mesh = roster.mesh if plan.keeps_numbers else new_mesh()
    stayed = {number: roster.specs[rank] for rank, number in plan.kept.items()}
    devices = _devices(stayed, seats, roster.specs[0].device.partition(":")[0], roster.specs[0].shared_gpus)
    specs: list[RankSpec] = []
    for seat, standing in zip(seats, standings(seats), strict=True):
        rank = standing.rank
        base = stayed.get(rank, roster.specs[0])
        place = {
            "rank": rank,
            "world_size": plan.num_ranks,
            "local_rank": seat.local_rank,
            "local_world_size": seat.local_world_size,
        }
        there = {"host": seat.host, "host_addr": seat.addr, "device": devices[rank]}
        env = environment(base.env, standing)
        specs.append(replace(base, **place, **there, axes=plan.new, mesh=mesh, env=env))
    return specs


def _devices(stayed: Mapping[int, RankSpec], seats: Sequence[Seat], kind: str, shared: int) -> list[str]:
    """Who stays keeps its accelerator, who comes takes a free one of its host, or one of those that ranks share."""
    used = {(spec.host, spec.device) for spec in stayed.values()}
    found: list[str] = []
    for rank, seat in enumerate(seats):
        if rank in stayed or kind == "cpu" or shared:
            found.append(stayed[rank].device if rank in stayed else device_at(f"{kind}/{shared}", seat.local_rank))
            continue
        candidates = (f"{kind}:{i}" for i in range(len(seats)))
        found.append(next(device for device in candidates if (seat.host, device) not in used))
        used.add((seat.host, found[-1]))
    return found


@untorn  # who stays must hear of the size that the mesh has then
def _reshape(roster: Roster, plan: Reshape, specs: Sequence[RankSpec]) -> Gather:
    """Give the mesh its new size, and let the ranks that stay know where they stand now."""
    roster.reactor.perform(lambda: roster.reshape(plan, specs))  # between two messages of the ranks
    survivors = roster.alive() if plan.old != plan.new else []
    told = Gather(roster, survivors, "the new size of the mesh")
    told_to_all = roster.mesh, plan.new, plan.kept, standings([spec.seat for spec in specs])
    if survivors:
        payload = codec.encode((told_to_all, dict[str, Any]()))
        roster.call(survivors, Order(STEWARD, "move", payload, on_main=True), told)
    return told


def _settle(roster: Roster, plan: Reshape, told: Gather, new: Sequence[int], timeout: float) -> list[Remaking]:
    """Wait for the ranks that come, and for those that hear of the new size; then all get new process groups.

    The actors that are on their way to the new ranks.
    """
    try:
        if new:
            roster.revive(new)
        told.wait(REGROUP_SECONDS + REGROUP_SECONDS_A_RANK * len(told.owing))
        told.check()
        if new:
            roster.wait_ready(timeout, new)
        if new or plan.old != plan.new:
            regroup(roster)
        return begin_remaking(roster, new) if new else []
    except BaseException as error:  # also Ctrl-C, as in `heal_roster`
        give_up(roster, new)  # also those that are up: they have no actors yet
        regroup(roster)
        if isinstance(error, SpawnError):
            raise SpawnError(f"{error}\nThe mesh has its new size: `%mesh restart @dead` tries again") from None
        raise


def _remake(roster: Roster, new: Sequence[int], begun: Sequence[Remaking]) -> Remade:
    """Wait for the actors that belong on the ranks that came."""
    try:
        return finish_remaking(roster, new, begun) if new else Remade({}, {})
    finally:
        if roster.groups.is_cut:
            regroup(roster)
