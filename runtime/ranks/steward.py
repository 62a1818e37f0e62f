"""The actor that lives on every rank from birth: it rebuilds process groups and breaks off waits in collectives.

The controller reaches it by its number, like the actors that users make.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Collection, Sequence
from dataclasses import replace

from ..actor import Actor, control_endpoint, endpoint
from ..engines.spec import Standing, environment
from ..groups import ledger, nccl
from ..groups.c10d import finishes
from ..groups.meeting import stand_in
from ..groups.renewal import Members
from ..groups.sockets import Port
from ..wire.unicode import packed
from .place import Move, Place

COME_SECONDS = 1.0


class Steward(Actor):
    """Serves the mesh on one rank; `regroup` on the main thread, the others also while that one is stuck."""

    _on_main_thread = True
    _is_careful = True  # new groups that were half made would be of no use

    def __init__(self, place: Place) -> None:
        self._place = place
        self._groups = place.groups  # None where ranks are threads
        self._newest = 0

    @control_endpoint
    def open_door(self) -> int:
        """Serve a new store for process groups; its port. 0 where ranks have no groups."""
        groups = self._groups
        return groups.open_door() if groups is not None and groups.plan.backend != "none" else 0

    @control_endpoint
    def ports(self) -> list[Port]:
        """The ports that connections of this rank's process groups lead to."""
        return sorted(self._groups.ports()) if self._groups is not None else []

    @control_endpoint
    def sequences(self) -> dict[str, int]:
        """How many collectives this rank has issued in each of its process groups, as `Groups.sequences`."""
        return self._groups.sequences() if self._groups is not None else {}

    @control_endpoint
    def members(self) -> Members | None:
        """The process groups of this rank; None where they are not such as can be renewed."""
        return self._groups.members() if self._groups is not None else None

    @control_endpoint
    def ledger(self, limit: int) -> bytes:
        """The last collectives that this rank has issued: an encoded `RankLedger`."""
        generation = (
            self._groups.plan.generation if self._groups is not None else 0
        )  # first: the main thread may make others now
        return packed(ledger.read(limit, generation))

    @control_endpoint
    def waits_in(self) -> tuple[str, tuple[int, ...] | None] | None:
        """The function of torch that this rank waits in for others, and whom it is of where that is known."""
        waiting = ledger.waits_in() if self._groups is not None else None
        return None if waiting is None else (waiting.call, waiting.ranks)

    @control_endpoint
    def is_held_up(self) -> bool:
        """Whether the running call goes on only when a collective ends."""
        return ledger.is_held_up(threading.main_thread().ident or 0)

    @control_endpoint
    def after_interrupt(self) -> str | None:
        """What the running call waits in for others, empty if it works; None unless it was interrupted, and goes on."""
        main = threading.main_thread().ident
        return ledger.blocked_in(main or 0) if self._place.has_struck() else None

    @control_endpoint
    def come(self, generation: int) -> list[str]:
        """Join what others wait in for this rank, which has nothing to do (`nccl.come`); the names of the groups."""
        groups, c10d, names = self._groups, sys.modules.get("torch.distributed.distributed_c10d"), list[str]()
        if groups is not None and groups.plan.generation == generation and c10d is not None:
            finishes(lambda: names.extend(nccl.come(c10d, groups.plan.device)), COME_SECONDS)
        return names

    @control_endpoint
    def release(self, ports: Sequence[Port], generation: int, joined: Sequence[str] = ()) -> int:
        """Break off what waits on connections to these ports, and in nccl; how many connections there were.

        Groups `joined` are those to which others have come for that.

        Of groups newer than `generation` nothing: who hears of it late, on a busy machine, has made them since.
        """
        groups = self._groups
        if groups is None or groups.plan.generation > generation:
            return 0
        stand_in(groups.plan)
        return groups.break_off(ports, joined)

    @control_endpoint
    def announce(self, generation: int) -> None:
        """New groups are to come: a busy rank, which is told later, needs none of those before."""
        self._newest = max(self._newest, generation)

    @endpoint
    def move(self, mesh: int, axes: dict[str, int], numbers: dict[int, int], standings: list[Standing]) -> None:
        """The mesh was resized: take the new place in it. New process groups come with `regroup`."""
        place, groups = self._place, self._groups
        place.move(Move(mesh, axes, numbers, standings))
        if groups is not None:  # a rank that is a process: one that is a thread has no environment of its own
            os.environ.update(environment({}, standings[place.rank]))
            groups.move(place.rank, place.axes)

    @endpoint
    def regroup(
        self,
        home: str,
        addr: str,
        port: int,
        store_rank: int,
        generation: int,
        ports: Sequence[Port],
        since: int | None = None,
        kept: Collection[str] = (),
    ) -> None:
        """Drop all process groups and make new ones, which meet at the store that `store_rank` serves there.

        But with `since`, those of the names in `kept` are renewed, which are of that generation or later. Groups of
        any rank listen at `ports`: what waits for one of them is broken off. Rank 0 is at `home` now: scripts that
        ranks start meet there.
        """
        if generation < self._newest:
            return
        os.environ["MASTER_ADDR"] = home
        if self._groups is not None and port:
            meeting = replace(self._groups.plan, master_addr=addr, master_port=port, store_rank=store_rank)
            self._groups.rebuild(replace(meeting, generation=generation), ports, since, kept)
