"""Where the running code is: in which actor, at which point of the mesh that its message was sent to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .shape import Extent, Point

if TYPE_CHECKING:
    from .mesh import ProcMesh

_NOWHERE = Point(0, Extent((), ()))


@dataclass(frozen=True, slots=True, repr=False)
class CreatorInstance:
    """Who made an actor: its name and, in turn, who made that one. Can be sent."""

    name: str
    class_name: str | None
    creator: CreatorInstance | None = None
    rank: Point = _NOWHERE
    recipe: tuple[Callable[..., ProcMesh], tuple[Any, ...]] | None = field(default=None, compare=False)
    """How `proc_mesh` is made where it is asked for: few ask, and making it tells a process of a mesh."""

    @property
    def proc_mesh(self) -> ProcMesh:
        """The mesh of processes it was spawned on."""
        assert self.recipe is not None  # but for those that tests make
        make, args = self.recipe
        return make(*args)

    @property
    def proc(self) -> ProcMesh:
        """Its own process, as a mesh of one."""
        return _own_of(self)

    def __repr__(self) -> str:
        return _path(self)


@dataclass(slots=True, eq=False)
class Instance:
    """The actor whose code runs, or the client: who it is and where it lives."""

    name: str
    class_name: str | None
    """None for the client."""
    rank: Point = _NOWHERE
    """Its point in the mesh it was spawned on."""
    address: tuple[int, int, int] = (0, 0, 0)
    """Mesh, rank and number of the actor."""
    creator: CreatorInstance | None = None
    find_procs: Callable[[], ProcMesh] | None = None
    on_kill: Callable[[str], object] | None = None
    on_stop: Callable[[str], object] | None = None
    is_in_logs: bool = False
    """Whether log records say that they were made in it; those of cells do not."""
    turn: int = 0
    """How many messages it has begun to work on."""
    owned: list[Any] = field(default_factory=list[Any])
    """Meshes that this actor has made: they stop when it does."""

    def own(self, mesh: Any) -> None:
        """Keep a mesh that this actor has made, and forget those that were stopped since."""
        self.owned = [*(each for each in self.owned if not each._is_over), mesh]

    @property
    def proc_mesh(self) -> ProcMesh:
        """The mesh of processes it was spawned on."""
        if self.find_procs is None:  # the client, before it has asked for hosts or processes
            from .here import node  # which needs to know where code is

            return node().own_procs()
        return self.find_procs()

    @property
    def proc(self) -> ProcMesh:
        """Its own process, as a mesh of one."""
        return _own_of(self)

    @property
    def actor_id(self) -> str:
        return f"{self.proc_id}.{self.name}"

    @property
    def proc_id(self) -> str:
        mesh, rank, _ = self.address
        return "root" if not mesh else f"mesh-{mesh:x}.rank-{rank}"

    def abort(self, reason: str | None = None) -> None:
        """End this actor as failed: its owner hears of it."""
        if self.on_kill is not None:
            self.on_kill(f"actor explicitly aborted due to: {reason or '(no reason provided)'}")

    def kill(self, reason: str | None = None) -> None:
        """The same as `abort`."""
        self.abort(reason)

    def stop(self, reason: str | None = None) -> None:
        """End this actor after the message it works on."""
        if self.on_stop is not None:
            self.on_stop(reason or "stopped by itself")

    def as_creator(self) -> CreatorInstance:
        """What can be sent of it."""
        return CreatorInstance(self.name, self.class_name, self.creator, self.rank, self.proc_mesh.__reduce__())

    def __repr__(self) -> str:
        return _path(self)


def _own_of(one: Instance | CreatorInstance) -> ProcMesh:
    mesh = one.proc_mesh
    return mesh.slice(**dict(one.rank)) if len(one.rank) == len(mesh.sizes) else mesh


def _path(one: Instance | CreatorInstance) -> str:
    """An actor by who made it: `<root>.<module.Boss boss>.<module.Worker workers{'gpus': 1/2}>`."""
    if one.class_name is None:
        return "<root>"
    made_by = "<root>" if one.creator is None else repr(one.creator)
    kind = f"{one.class_name} " if one.class_name else ""  # not known where the class could not be unpickled
    return f"{made_by}.<{kind}{one.name}{one.rank if len(one.rank) else ''}>"


@dataclass(frozen=True, slots=True)
class Context:
    """What `context()` gives: the actor, and the point of this message in the view it was sent to."""

    actor_instance: Instance
    message_rank: Point


CLIENT = Context(Instance("root", None), _NOWHERE)
"""The context of code that runs in no actor: the notebook's, a script's."""

_current: ContextVar[Context] = ContextVar("meshbook_context")


def context() -> Context:
    """The context of the running code.

    Example:
        >>> context().actor_instance
        <root>
    """
    return _current.get(CLIENT)


def enter(context: Context) -> None:
    """Make this the context of the code that runs from here on, in this thread or task."""
    _current.set(context)


SERIAL = "meshbook-serial"
"""The name of the task in which an async actor awaits its messages one after the other."""


def serial_task() -> asyncio.Task[Any] | None:
    """The running task, if an actor can take no other message until it goes on."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return None
    return task if task is not None and task.get_name() == SERIAL else None


def current_rank() -> Point:
    """The point of the running message in the view it was sent to."""
    return context().message_rank


def current_size() -> dict[str, int]:
    """The sizes of that view by axis."""
    extent = context().message_rank.extent
    return dict(extent)


def current_actor_name() -> str:
    """The id of the running actor."""
    return context().actor_instance.actor_id
