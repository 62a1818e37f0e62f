"""Fleets: the way from this process to the ranks of one mesh, whoever controls it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from .future import Future, done
from .orders import Birth, Order
from .ranks.place import coordinates
from .wire.codec import Encoded
from .wire.deferred import untorn
from .wire.lane import Frames
from .wire.messages import Answer, Call, Note, Reply, Spawn, StopActor
from .wire.post import Caller, Post
from .wire.reactor import Reactor

if TYPE_CHECKING:
    from .node import Node


class Fleet(Protocol):
    """What meshes need of the ranks they stand for. `Roster` is the controller's, `RemoteFleet` everybody else's."""

    axes: dict[str, int]
    mesh: int
    """The number of the mesh, equal in all processes."""

    @property
    def reactor(self) -> Reactor: ...

    @property
    def is_stopped(self) -> bool: ...

    def name_of(self, rank: int) -> str:
        """A rank in a reader's words."""
        ...

    def dead(self) -> list[int]:
        """The ranks that are known to be gone."""
        ...

    def why_dead(self, rank: int) -> str:
        """How one of these ended; its first line says it."""
        ...

    def failed(self, actor: int) -> Collection[int]:
        """The ranks on which this actor has failed for good, as far as this process knows."""
        ...

    def ready(self) -> Future[bool]:
        """Done when all ranks are up; fails when one did not come up."""
        ...

    def stop_all(self, reason: str) -> Future[None]:
        """Take all ranks down, for the owner."""
        ...

    def spawn_actor(self, birth: Birth, caller: Caller) -> int:
        """Make an actor on these ranks; `caller` hears from each."""
        ...

    def stop_actor(
        self, ranks: Sequence[int], actor: int, reason: str, caller: Caller, on_main: bool = False
    ) -> int: ...

    def call(self, ranks: Sequence[int], order: Order, caller: Caller | None) -> int:
        """Call an endpoint on these ranks; without a `caller` nobody answers."""
        ...


class RemoteFleet:
    """A mesh that another process controls, seen from a rank: messages go to its ranks directly."""

    def __init__(self, node: Node, mesh: int, axes: dict[str, int]) -> None:
        self.axes = axes
        self.mesh = mesh
        self.is_stopped = False
        self.reactor = node.reactor
        self._node = node
        self._post = Post()
        self._dead: dict[int, str] = {}
        self._lost: dict[tuple[int, int], str] = {}  # by rank and actor: made from here, and not there any more
        self._owners: dict[int, Owned] = {}  # of actors made from here

    def name_of(self, rank: int) -> str:
        coord = ",".join(f"{axis}={i}" for axis, i in coordinates(rank, self.axes).items())
        return f"rank {rank}" if not coord or list(self.axes) == ["rank"] else f"rank {rank} ({coord})"

    def spawn_actor(self, birth: Birth, caller: Caller) -> int:
        seq = self._post.open(birth.ranks, caller)
        self._owners[birth.actor] = (birth.name, birth.owner, birth.ranks)
        spawn = Spawn(seq, birth.actor, birth.name, birth.view, birth.owner, self._node.outgoing_run())
        self._send(birth.ranks, birth.actor, spawn, birth.payload)
        return seq

    def stop_actor(self, ranks: Sequence[int], actor: int, reason: str, caller: Caller, on_main: bool = False) -> int:
        seq = self._post.open(ranks, caller)
        self._owners.pop(actor, None)
        self._send(ranks, actor, StopActor(seq, actor, reason, self._node.outgoing_run()), None)
        return seq

    def call(self, ranks: Sequence[int], order: Order, caller: Caller | None) -> int:
        actor, endpoint, payload, view, _ = order
        seq = self._post.open(ranks, caller) if caller is not None else 0
        run = self._node.outgoing_run()
        self._send(ranks, actor, Call(seq, actor, endpoint, view, caller is not None, run), payload)
        return seq

    @untorn
    def _send(
        self, ranks: Sequence[int], actor: int, message: Spawn | Call | StopActor, payload: Encoded | None
    ) -> None:
        for rank in ranks:
            why = self._dead.get(rank) or self._lost.get((rank, actor))
            if why is not None:
                # This one alone: the process that has taken its place may owe others.
                self.reactor.schedule(partial(self._post.lose_one, message.seq, rank, why))
            else:
                self._node.send((self.mesh, rank), message, payload)

    def deliver(self, rank: int, message: Reply | Answer, frames: Frames) -> None:
        """An answer has come from this rank."""
        self._post.deliver(rank, message, frames)

    def deliver_note(self, rank: int, note: Note, frames: Frames) -> None:
        self._post.deliver_note(rank, note, frames)

    def ready(self) -> Future[bool]:
        """Known here only from somebody who had it: it was ready, or its calls will tell."""
        return done(True)

    def stop_all(self, reason: str) -> Future[None]:
        raise ValueError("ProcMesh is not owned; must be stopped by an owner")

    def dead(self) -> list[int]:
        return sorted(self._dead)

    def why_dead(self, rank: int) -> str:
        return self._dead.get(rank, self.name_of(rank))

    def failed(self, actor: int) -> Collection[int]:
        lost = [rank for rank, each in list(self._lost) if each == actor]
        return {*lost, *self._node.failed.get(actor, ())}

    def owners(self, rank: int) -> dict[tuple[int, int, int], str]:
        """The same as `Births.owners`, of actors that were made from here."""
        failed, made = self._node.failed, list(self._owners.items())
        return owners_of([owned for actor, owned in made if rank not in failed.get(actor, ())], rank)

    def lose(self, rank: int, why: str) -> list[Caller]:
        """The rank is gone: who waits for what it owed, to be told. On any thread."""
        self._dead[rank] = why
        self._lost |= {(rank, actor): why for actor in list(self._owners)}
        return self._post.strike(rank)

    def revive(self, rank: int) -> None:
        """A new process is in its place: it has the actors that the controller made, and none that were made here."""
        self._dead.pop(rank, None)


Owned = tuple[str, tuple[int, int, int], Sequence[int]]
"""Actors of one class: the name of their mesh, who owns them, and the ranks on which they live."""


def owners_of(made: Iterable[Owned], rank: int) -> dict[tuple[int, int, int], str]:
    """Who owned actors on this rank, each once, with the name of its first mesh there: its death is told once to each.

    Example:
        >>> made = [("left", (0, 0, 1), [0]), ("both", (0, 0, 1), [0, 1]), ("late", (0, 0, 1), [1])]
        >>> owners_of(made, 0), owners_of(made, 1), owners_of(made, 2)
        ({(0, 0, 1): 'left'}, {(0, 0, 1): 'both'}, {})
    """
    found: dict[tuple[int, int, int], str] = {}
    for name, owner, ranks in made:
        if rank in ranks:
            found.setdefault(owner, name)
    return found
