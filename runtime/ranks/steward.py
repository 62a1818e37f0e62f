"""The actor that lives on every rank from birth: it rebuilds process groups and breaks off waits in collectives.

The controller reaches it by its number, like the actors that users make.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from ..actor import Actor, control_endpoint, endpoint
from .place import Place

NUMBER = 2
"""The number of this actor on every rank."""


class Steward(Actor):
    """Serves the mesh on one rank; `regroup` on the main thread, the others also while that one is stuck."""

    _on_main_thread = True

    def __init__(self, place: Place) -> None:
        self._place = place

    @control_endpoint
    def open_door(self) -> int:
        """Serve a new store for process groups; its port. 0 where ranks have no groups."""
        groups = self._place.groups
        return groups.open_door() if groups is not None and groups.plan.backend != "none" else 0

    @control_endpoint
    def expect(self, generation: int) -> None:
        """New process groups are on their way: older ones, in the queue before them, are not worth a wait."""
        if self._place.groups is not None:
            self._place.groups.newest = generation

    @control_endpoint
    def ports(self) -> list[int]:
        """The ports that connections of this rank's process groups lead to."""
        groups = self._place.groups
        return sorted(groups.ports()) if groups is not None else []

    @control_endpoint
    def sequences(self) -> dict[str, int]:
        """How many collectives this rank has issued in each of its process groups, by the group's name."""
        groups = self._place.groups
        return groups.sequences() if groups is not None else {}

    @control_endpoint
    def release(self, ports: Sequence[int]) -> int:
        """Break off what waits on connections to these ports, and in nccl; how many connections there were."""
        groups = self._place.groups
        return groups.break_off(ports) if groups is not None else 0

    @endpoint
    def regroup(self, port: int, store_rank: int, generation: int) -> None:
        """Drop all process groups and make new ones, which meet at the store that `store_rank` serves."""
        os.environ["MASTER_PORT"] = str(port)
        groups = self._place.groups
        if groups is not None and port:
            groups.rebuild(replace(groups.plan, master_port=port, store_rank=store_rank, generation=generation))
