"""Meshes on their way: a rank has told us of one that the root is still starting for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..fleet import Fleet, RemoteFleet
from ..future import Future, Promise
from ..orders import Birth, Order
from ..wire.codec import Encoded
from ..wire.outlet import owned
from ..wire.post import Caller

if TYPE_CHECKING:
    from .root import Root


class Expected:
    """Stands for a roster that is not there yet: what is sent waits for it, in order."""

    def __init__(self, root: Root, mesh: int, axes: dict[str, int]) -> None:
        self.axes = axes
        self.mesh = mesh
        self.reactor = root.reactor
        self._root = root
        self._nothing_yet = RemoteFleet(root, mesh, axes)

    @property
    def _known(self) -> Fleet:
        """The roster, as soon as it is there."""
        return self._root.rosters.get(self.mesh, self._nothing_yet)

    @property
    def is_stopped(self) -> bool:
        return self._known.is_stopped

    def name_of(self, rank: int) -> str:
        return self._known.name_of(rank)

    def dead(self) -> list[int]:
        return self._known.dead()

    def why_dead(self, rank: int) -> str:
        return self._known.why_dead(rank)

    def failed(self, actor: int) -> Collection[int]:
        return self._known.failed(actor)

    def ready(self) -> Future[bool]:
        promise: Promise[bool] = Promise(self.reactor)
        self._when_there(lambda fleet: promise.follow(fleet.ready(), True))
        return promise.future

    def stop_all(self, reason: str) -> Future[None]:
        raise ValueError("ProcMesh is not owned; must be stopped by an owner")

    def spawn_actor(self, birth: Birth, caller: Caller) -> int:
        kept = replace(birth, payload=self._kept(birth.payload))
        self._when_there(lambda fleet: fleet.spawn_actor(kept, caller))
        return 0

    def stop_actor(self, ranks: Sequence[int], actor: int, reason: str, caller: Caller, on_main: bool = False) -> int:
        self._when_there(lambda fleet: fleet.stop_actor(ranks, actor, reason, caller, on_main))
        return 0

    def call(self, ranks: Sequence[int], order: Order, caller: Caller | None) -> int:
        kept = order._replace(payload=self._kept(order.payload))
        self._when_there(lambda fleet: fleet.call(ranks, kept, caller))
        return 0

    def _kept(self, payload: Encoded) -> Encoded:
        return owned(payload) if self._known is self._nothing_yet else payload

    def _when_there(self, act: Callable[[Fleet], Any]) -> None:
        self._root.when_there(self.mesh, self.axes, act)
