# pyright: reportPrivateUsage=false
# Meshes keep their members private: every public one is a name that no endpoint of an actor can have.

"""Meshes: named grids of processes and of the actors that live on them.

A mesh is a value: slicing one gives another view of the same ranks, and it can be sent to other actors. Names and
meanings follow Monarch.
"""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections.abc import Mapping, Set
from functools import cached_property
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from .actor import Actor, endpoints_of, is_on_main_thread, kind_of, renew_endpoints
from .adverbs import Endpoint, Gather, Target, view_of
from .errors import MeshStopped, checks_for_caller, marked
from .fleet import Fleet
from .future import Future, Promise, done
from .here import node
from .looks import actors_html, actors_text, procs_html, state_of
from .node import ROOT, shape_of
from .orders import Birth
from .ranks.place import axes_text
from .scope import context
from .shape import MeshTrait, Shape
from .tensors.face import TensorMesh
from .undecorated import Method, NotAnEndpoint
from .wire import codec
from .wire.messages import View

if TYPE_CHECKING:
    from .controller.roster import Roster

A = TypeVar("A", bound=Actor)


class _View(MeshTrait):
    """What process and actor meshes share: a shape over the ranks of a fleet."""

    def __init__(self, fleet: Fleet, shape: Shape) -> None:
        self._theirs = fleet
        self._number = fleet.mesh
        self._shape = shape

    @property
    def _fleet(self) -> Fleet:
        """The way to the ranks. Raises `MeshStopped` when they have other numbers than when this view was made."""
        if self._theirs.mesh != self._number:
            raise MeshStopped(
                f"this view is of a mesh that was resized to {axes_text(self._theirs.axes)}, which gave ranks other "
                "numbers: take one of the mesh as it is, and spawn actors again"
            )
        return self._theirs

    @property
    def _is_stopped(self) -> bool:
        return self._theirs.mesh != self._number or self._theirs.is_stopped

    @property
    def _is_over(self) -> bool:
        """Whether who has made it need not stop it any more."""
        return self._is_stopped

    @property
    def _failed(self) -> Set[int]:
        """Ranks that live, and on which what this is a mesh of does not any more."""
        return frozenset()

    @cached_property
    def _target(self) -> Target:
        return Target.of(self._shape)

    def _identity(self) -> tuple[object, ...]:
        return (type(self), self._number, self._shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _View) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())


class ProcMesh(_View, TensorMesh):
    """A mesh of rank processes, on which actors are spawned.

    Example:
        >>> from meshbook.runtime import endpoint, this_host
        >>> class Greeter(Actor):
        ...     @endpoint
        ...     def greet(self, name):
        ...         return f"hello {name}"
        >>> with this_host().spawn_procs({"dp": 2}) as procs:
        ...     greeters = procs.spawn("greeters", Greeter)
        ...     greeters.greet.call("you").get().values()
        ['hello you', 'hello you']
    """

    def __init__(self, fleet: Fleet, shape: Shape, *, is_owned: bool = True) -> None:
        super().__init__(fleet, shape)
        self._is_owned = is_owned

    def _new_with_shape(self, shape: Shape) -> Self:
        return type(self)(self._fleet, shape, is_owned=False)

    @property
    def roster(self) -> Roster:
        """The controller's book of these ranks: states, logs, calls on their way. Only the controller has one."""
        return cast("Roster", self._theirs)

    @property
    def initialized(self) -> Future[bool]:
        """Done (True) when all processes are up and their bootstrap has run; fails when one did not come up."""
        return self._fleet.ready()

    def spawn(self, name: str, Class: type[A], *args: Any, **kwargs: Any) -> A:
        """Make an actor of `Class` on every rank of this mesh; returns at once, with an `ActorMesh`.

        The constructor runs on the ranks before the first call does. (To a type checker the mesh looks like `Class`,
        so that it completes its endpoints.)

        Raises:
            ValueError: `Class` is not an `Actor`, mixes sync and async endpoints, or has an endpoint with a name that
                meshes use themselves.
            TypeError: the arguments do not fit the constructor, the name is no text, or `Class` is no class.
            RuntimeError: the mesh was stopped.
        """
        if self._fleet.is_stopped:
            raise marked(MeshStopped("`ProcMesh` has already been stopped"))
        check_name(name, "actors")
        check_class(Class)
        _check_arguments(Class, args, kwargs)
        instance = context().actor_instance
        payload = codec.encode((Class, args, kwargs, instance.as_creator()), whole_classes=True)
        actor = secrets.randbits(62)
        made: Promise[Any] = Promise(self._fleet.reactor)
        initialized: Promise[None] = Promise(self._fleet.reactor)
        initialized.follow(made.future, None)
        ranks = self._target.ranks
        gather = Gather(self._shape, ranks, f"{name}.__init__", self._fleet, made, turn=actor)
        where = (tuple(ranks), actor, name, view_of(self._shape))
        birth = Birth(*where, payload, instance.address, is_on_main_thread(Class), Class.__qualname__)
        self._fleet.spawn_actor(birth, gather)
        mesh = ActorMesh(self._fleet, self._shape, actor, name, Class, initialized.future)
        instance.own(mesh)
        return cast("A", mesh)

    @checks_for_caller
    def stop(self, reason: str = "stopped by client") -> Future[None]:
        """Take all ranks of this mesh down; done when they are gone. Stopping twice changes nothing.

        Raises:
            ValueError: this is a slice, or a reference from elsewhere; its owner can stop the whole mesh.
        """
        if not self._is_owned:
            is_own = self._fleet.mesh == ROOT[0]
            why = "the program's own process ends with it" if is_own else "stop the whole mesh, where it was made"
            raise ValueError(f"ProcMesh is not owned; must be stopped by an owner: {why}")
        return self._fleet.stop_all(reason)

    @property
    def host_mesh(self) -> Any:
        """The host of a mesh of one process."""
        if len(self) != 1:
            problem = "`ProcMesh.host_mesh` is not yet supported for non-singleton proc meshes"
            raise NotImplementedError(f"{problem}: this one has {len(self)} processes")
        from .host import mesh_at, this_host

        here, found = this_host(), mesh_at(node().site_of((self._fleet.mesh, self._shape.ranks()[0])), {})
        return here if here == found else found

    async def logging_option(
        self, stream_to_client: bool = False, aggregate_window_sec: int | None = None, level: int = 20
    ) -> None:
        """How log records and what is printed there come to a program, as in Monarch; a notebook shows all by itself.

        Ranks drop log records below `level`. With `stream_to_client` each line names its process and its rank, and
        with a window, lines that are alike are told once, every so many seconds. This wants
        `configure(enable_log_forwarding=True)`, and warns without.

        Raises:
            ValueError: the level is none.
            RuntimeError: there is a window, and nothing is streamed.
        """
        if not 0 <= level <= 255:
            raise ValueError(f"Invalid logging level: {level} is not within 0 and 255")
        if aggregate_window_sec is not None and not stream_to_client:
            raise RuntimeError("cannot set aggregate window without streaming to client: say stream_to_client=True")
        from .controller.forwarding import set_up

        await self.initialized
        await set_up(self, stream_to_client, aggregate_window_sec, level)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop().get()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(lambda: self.stop().get())  # ranks have seconds to clean up: the loop goes on

    def __reduce__(self) -> Any:
        return _restore_procs, (self._fleet.mesh, self._fleet.axes, view_of(self._shape))

    def __repr__(self) -> str:
        return f"<ProcMesh {self._shape}{'' if state_of(self) == 'alive' else f', {state_of(self)}'}>"

    def _repr_html_(self) -> str:
        return procs_html(self)


class ActorMesh(_View, Generic[A]):
    """Actors of one class on the ranks of a mesh; its endpoints are attributes. Can be sent to other actors."""

    def __init__(
        self, fleet: Fleet, shape: Shape, actor: int, name: str, cls: type[A], initialized: Future[None] | None = None
    ) -> None:
        super().__init__(fleet, shape)
        self._actor = actor
        self._name = name
        self._class = cls
        self._initialized = initialized
        self._is_owned = initialized is not None
        self._was_stopped = False
        self._on_main = is_on_main_thread(cls)

    @property
    def __name__(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] - Monarch's meshes have it
        return self._class.__name__

    @property
    def initialized(self) -> Future[None]:
        """Done when every constructor has run; fails with the first that raised.

        That is known where they were spawned: of a mesh that was sent here it is done at once.
        """
        if self._initialized is None:
            return done(None)
        return self._initialized

    @property
    def _is_over(self) -> bool:
        return self._was_stopped or super()._is_over

    @property
    def _failed(self) -> Set[int]:
        return frozenset(self._fleet.failed(self._actor))

    def _new_with_shape(self, shape: Shape) -> Self:
        view = type(self)(self._fleet, shape, self._actor, self._name, self._class, self._initialized)
        view._is_owned = False
        return view

    @cached_property
    def _target(self) -> Target:
        target = super()._target
        return Target(target.ranks, None) if self._is_owned else target  # as it was spawned: no slice, no reference

    def _identity(self) -> tuple[object, ...]:
        return (*super()._identity(), self._actor)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *endpoints_of(self._class)})

    def __getattr__(self, name: str) -> Any:
        endpoints = endpoints_of(self._class)
        # Of other special names, which pickle and others ask for, a mesh has none.
        if name.startswith("__") and name != "__call__" and name not in endpoints:
            raise AttributeError(name)
        if name in endpoints:
            found: Endpoint[Any, Any] = Endpoint(self, name, endpoints[name])
            setattr(self, name, found)  # the next one to ask need not come here
            return found
        method = inspect.getattr_static(self._class, name, None)
        if isinstance(method, FunctionType | staticmethod | classmethod):
            return NotAnEndpoint(self, name, cast("Method", method))
        known = ", ".join(sorted(endpoints)) or "none"
        raise marked(AttributeError(f"{self._class.__name__} has no endpoint {name!r}; its endpoints: {known}"))

    @checks_for_caller
    def stop(self, reason: str = "stopped by client") -> Future[None]:
        """End these actors, after what they were sent before; done when each has cleaned up. The ranks live on.

        What an async actor still awaits after 1 s is cancelled. One that goes on all the same is left to itself after
        3 s, and so is one that is not async.

        Raises:
            NotImplementedError: this is a slice or a reference; only the owner can stop the whole.
        """
        if not self._is_owned:
            raise NotImplementedError("Cannot call stop on an ActorMeshRef, requires an owned ActorMesh")
        self._was_stopped = True
        promise: Promise[None] = Promise(self._fleet.reactor)
        if self._is_stopped:
            promise.resolve(None)
        else:
            ranks, ended = self._target.ranks, Promise[Any](self._fleet.reactor)
            ended.future.add_done_callback(lambda _: promise.resolve(None))  # on a rank that is dead it has stopped too
            gather = Gather(self._shape, ranks, f"{self._name}.stop", self._fleet, ended, wait_for_all=True)
            self._fleet.stop_actor(ranks, self._actor, reason, gather, self._on_main)
        return promise.future

    def __reduce__(self) -> Any:
        arguments = (self._fleet.mesh, self._fleet.axes, view_of(self._shape), self._actor, self._name, self._class)
        return _restore_actors, arguments

    def __repr__(self) -> str:
        return f"<ActorMesh {self._name} of {self._class.__name__} on {self._shape}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(actors_text(self))

    def _repr_html_(self) -> str:
        return actors_html(self)


def _restore_procs(mesh: int, axes: dict[str, int], view: View) -> ProcMesh:
    return ProcMesh(node().fleet(mesh, axes), shape_of(view), is_owned=False)


def _restore_actors(
    mesh: int, axes: dict[str, int], view: View, actor: int, name: str, cls: type[Any]
) -> ActorMesh[Any]:
    return ActorMesh(node().fleet(mesh, axes), shape_of(view), actor, name, cls)


def actor_number(mesh: Any) -> int:
    """The number under which the ranks know the actors of a mesh."""
    return mesh._actor


def roster_of(mesh: Any) -> Roster:
    """The controller's book of the ranks that a mesh of processes or actors is on."""
    return cast("Roster", mesh._fleet)


@checks_for_caller
def check_name(name: Any, of: str) -> None:
    """Raises `TypeError` for a name that is no text."""
    if not isinstance(name, str):
        raise TypeError(f"the name of {of} is a str, not {name!r}")


_OF_MESHES = frozenset(
    ("_actor", "_class", "_fleet", "_initialized", "_is_owned", "_name", "_number", "_on_main", "_shape", "_theirs")
) | {"_was_stopped"}
"""What an `ActorMesh` keeps in itself: no endpoint can be called so either."""


@checks_for_caller
def check_class(cls: Any) -> None:
    """Raises `ValueError` for a class that cannot be spawned, and `TypeError` for what is no class."""
    if not isinstance(cls, type):
        raise TypeError(f"{cls!r} is not a class: give the class itself, which subclasses Actor")
    if not issubclass(cls, Actor):
        raise ValueError(f"{cls!r} is not an Actor, and must subclass it: write `class Name(Actor)`")
    renew_endpoints(cls)
    members = _OF_MESHES.union(*map(vars, ActorMesh.__mro__))
    taken = sorted(members.intersection(endpoints_of(cls)))
    if taken:
        problem = "ActorMesh has an attribute that collides with an endpoint name"
        raise ValueError(f"{problem}: an endpoint of {cls.__name__} cannot be called {taken[0]!r}")
    if inspect.iscoroutinefunction(cls.__init__):
        raise ValueError(f"{cls.__name__}.__init__ cannot be async def: nobody awaits it; await in an endpoint")
    kind_of(cls)


def _check_arguments(cls: type[Actor], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raises `TypeError` where the constructor does not take these."""
    try:
        signature = inspect.signature(cls)
    except ValueError:  # that of a parent that is not written in Python is not known
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise marked(TypeError(f"{cls.__name__}{signature}: {error}")) from None
