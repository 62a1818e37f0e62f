"""Meshes: named grids of processes and of the actors that live on them.

A mesh is a value: slicing one gives another view of the same ranks. Names and meanings follow Monarch.
"""

# pyright: reportPrivateUsage=false
# Meshes keep their members private: every public one is a name that no endpoint of an actor can have.

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator
from typing import Any, Generic, ParamSpec, Self, TypeVar

from .actor import Actor, EndpointProperty
from .errors import ActorError, SupervisionError
from .future import Future, Promise
from .ndslice import NDSlice
from .ranks.failure import RemoteFailure, rebuild
from .roster import Roster, view_of
from .shape import MeshTrait, Shape
from .values import ValueMesh
from .wire import codec
from .wire.lane import Frames
from .wire.messages import Answer, Note, Reply, View
from .wire.post import next_number

A = TypeVar("A", bound=Actor)
P = ParamSpec("P")
R = TypeVar("R")


class _View(MeshTrait):
    """What process and actor meshes share: a shape over the ranks of a roster."""

    def __init__(self, roster: Roster, shape: Shape) -> None:
        self._roster = roster
        self._shape = shape

    @property
    def _ndslice(self) -> NDSlice:
        return self._shape.ndslice

    @property
    def _labels(self) -> tuple[str, ...]:
        return tuple(self._shape.labels)

    def _view(self) -> View:
        piece = self._shape.ndslice
        return view_of(self._shape.labels, piece.offset, piece.sizes, piece.strides)


class ProcMesh(_View):
    """A mesh of rank processes, on which actors are spawned.

    Example:
        >>> class Greeter(Actor):
        ...     @endpoint
        ...     def greet(self, name):
        ...         return f"hello {name}"
        >>> with this_host().spawn_procs({"dp": 2}) as procs:
        ...     greeters = procs.spawn("greeters", Greeter)
        ...     greeters.greet.call("you").get().values()
        ['hello you', 'hello you']
    """

    def __init__(self, roster: Roster, shape: Shape, *, is_owned: bool = True) -> None:
        super().__init__(roster, shape)
        self._is_owned = is_owned

    @property
    def roster(self) -> Roster:
        """The controller's book of these ranks: states, logs, calls on their way."""
        return self._roster

    def _new_with_shape(self, shape: Shape) -> Self:
        return type(self)(self._roster, shape, is_owned=False)

    def spawn(self, name: str, cls: type[A], *args: Any, **kwargs: Any) -> ActorMesh[A]:
        """Make an actor of `cls` on every rank of this mesh; returns at once.

        The constructor runs on the ranks before the first call does.

        Raises:
            ValueError: `cls` is not an `Actor`, or one of its endpoints has a name that meshes use themselves.
            TypeError: the arguments do not fit the constructor.
        """
        _check_class(cls)
        inspect.signature(cls).bind(*args, **kwargs)
        promise: Promise[None] = Promise(self._roster.reactor)
        actor = next_number()
        gather = _Gather(self._shape, f"{name}.__init__", self._roster, lambda _: promise.resolve(None), promise.fail)
        payload = codec.encode((cls, args, kwargs))
        self._roster.spawn_actor(self._shape.ranks(), actor, name, self._view(), payload, gather)
        return ActorMesh(self._roster, self._shape, actor, name, cls, promise.future)

    def stop(self, reason: str = "stopped by client") -> Future[None]:
        """Take all ranks of this mesh down; done when they are gone.

        Raises:
            ValueError: this is a slice; only the whole mesh can be stopped.
        """
        if not self._is_owned:
            raise ValueError("ProcMesh is not owned; must be stopped by an owner: stop the mesh this is a slice of")
        promise: Promise[None] = Promise(self._roster.reactor)
        self._roster.stop()
        promise.resolve(None)
        return promise.future

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._roster.is_stopped:
            self.stop().get()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    def __repr__(self) -> str:
        return f"<ProcMesh {self._shape}{', stopped' if self._roster.is_stopped else ''}>"


class ActorMesh(_View, Generic[A]):
    """Actors of one class on the ranks of a mesh; its endpoints are attributes."""

    def __init__(
        self, roster: Roster, shape: Shape, actor: int, name: str, cls: type[A], initialized: Future[None]
    ) -> None:
        super().__init__(roster, shape)
        self._actor = actor
        self._name = name
        self._class = cls
        self._initialized = initialized

    @property
    def __name__(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] - Monarch's meshes have it
        return self._class.__name__

    @property
    def initialized(self) -> Future[None]:
        """Done when every constructor has run; fails with the first that raised."""
        return self._initialized

    def _new_with_shape(self, shape: Shape) -> Self:
        return type(self)(self._roster, shape, self._actor, self._name, self._class, self._initialized)

    def __getattr__(self, name: str) -> Endpoint[Any, Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        endpoints = self._class.endpoints()
        if name not in endpoints:
            known = ", ".join(sorted(endpoints)) or "none"
            raise AttributeError(f"{self._class.__name__} has no endpoint {name!r}; its endpoints: {known}")
        return Endpoint(self, name, endpoints[name])

    def stop(self, reason: str = "stopped by client") -> Future[None]:
        """Forget these actors on their ranks; the ranks live on."""
        promise: Promise[None] = Promise(self._roster.reactor)
        gather = _Gather(self._shape, f"{self._name}.stop", self._roster, lambda _: promise.resolve(None), promise.fail)
        self._roster.stop_actor(self._shape.ranks(), self._actor, gather)
        return promise.future

    def __repr__(self) -> str:
        return f"<ActorMesh {self._name} of {self._class.__name__} on {self._shape}>"


class Endpoint(Generic[P, R]):
    """An endpoint of an actor mesh, called by an adverb: `mesh.add.call(1)`, `mesh.add.choose(1)`."""

    def __init__(self, mesh: ActorMesh[Any], name: str, declared: EndpointProperty[Any, Any]) -> None:
        self._mesh = mesh
        self._name = name
        self._declared = declared

    def call(self, *args: Any, **kwargs: Any) -> Future[ValueMesh[Any]]:
        """Call all actors of the mesh; the answers by rank. The first failure ends it, with `.partial` answers."""
        promise: Promise[ValueMesh[Any]] = Promise(self._mesh._roster.reactor)
        gather = _Gather(self._mesh._shape, self._title, self._mesh._roster, promise.resolve, promise.fail)
        self._send(self._mesh._shape, gather, args, kwargs)
        return promise.future

    def call_one(self, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call the only actor of the mesh. Raises `ValueError` at once if there are more."""
        if len(self._mesh) != 1:
            raise ValueError(f"call_one requires exactly 1 actor, but mesh has {len(self._mesh)}")
        return self._call_single(self._mesh._shape, args, kwargs)

    def choose(self, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call one actor of the mesh, picked at random."""
        rank = random.choice(self._mesh._shape.ranks())
        return self._call_single(Shape((), NDSlice(offset=rank, sizes=[], strides=[])), args, kwargs)

    def stream(self, *args: Any, **kwargs: Any) -> Iterator[Future[Any]]:
        """Call all actors; futures of the answers in the order in which they come. The calls go out at once."""
        ranks = self._mesh._shape.ranks()
        promises: list[Promise[Any]] = [Promise(self._mesh._roster.reactor) for _ in ranks]
        self._send(self._mesh._shape, _Arrivals(self._title, self._mesh._roster, promises), args, kwargs)
        return iter([promise.future for promise in promises])

    def broadcast(self, *args: Any, **kwargs: Any) -> None:
        """Call all actors and want no answer."""
        self._send(self._mesh._shape, None, args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            f"{self._title} is an endpoint: say how to call it, .call(...) for all ranks, "
            ".call_one(...), .choose(...), .stream(...) or .broadcast(...)"
        )

    @property
    def _title(self) -> str:
        return f"{self._mesh._name}.{self._name}"

    def _call_single(self, shape: Shape, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future[Any]:
        promise: Promise[Any] = Promise(self._mesh._roster.reactor)
        self._send(shape, _Arrivals(self._title, self._mesh._roster, [promise]), args, kwargs)
        return promise.future

    def _send(self, shape: Shape, caller: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._declared.check(args, kwargs)
        mesh = self._mesh
        piece = shape.ndslice
        view = view_of(shape.labels, piece.offset, piece.sizes, piece.strides)
        mesh._roster.call(shape.ranks(), mesh._actor, self._name, view, codec.encode((args, kwargs)), caller)


class _Gather:
    """Collects the answers of all ranks of a view; the first failure settles the whole."""

    def __init__(
        self,
        shape: Shape,
        title: str,
        roster: Roster,
        on_done: Callable[[ValueMesh[Any]], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        self._shape = shape
        self._title = title
        self._roster = roster
        self._on_done = on_done
        self._on_failed = on_failed
        self._answers: dict[int, Any] = {}

    def on_reply(self, rank: int, reply: Reply | Answer, frames: Frames) -> None:
        try:
            self._answers[rank] = _open(reply.ok, frames, self._title, self._roster.name_of(rank))
        except (ActorError, codec.DecodeError) as error:
            self._fail(error)
        else:
            if len(self._answers) == len(self._shape):
                self._on_done(ValueMesh(self._shape, [self._answers[r] for r in self._shape.ranks()]))

    def on_note(self, rank: int, note: Note, frames: Frames) -> None: ...

    def on_lost(self, rank: int, why: str) -> None:
        self._fail(_lost(self._title, why))

    def _fail(self, error: BaseException) -> None:
        error.partial = dict(self._answers)  # type: ignore[attr-defined]
        self._on_failed(error)


class _Arrivals:
    """Settles promises one after the other as answers come."""

    def __init__(self, title: str, roster: Roster, promises: list[Promise[Any]]) -> None:
        self._title = title
        self._roster = roster
        self._waiting = list(reversed(promises))

    def on_reply(self, rank: int, reply: Reply | Answer, frames: Frames) -> None:
        promise = self._waiting.pop()
        try:
            promise.resolve(_open(reply.ok, frames, self._title, self._roster.name_of(rank)))
        except (ActorError, codec.DecodeError) as error:
            promise.fail(error)

    def on_note(self, rank: int, note: Note, frames: Frames) -> None: ...

    def on_lost(self, rank: int, why: str) -> None:
        self._waiting.pop().fail(_lost(self._title, why))


def _open(ok: bool, frames: Frames, title: str, rank_name: str) -> Any:
    value = codec.decode(frames[0], frames[1:])
    if ok:
        return value
    assert isinstance(value, RemoteFailure)
    raise rebuild(value, f"Actor call {title} on {rank_name}")


def _lost(title: str, why: str) -> SupervisionError:
    error = SupervisionError(f"Endpoint call {title}() failed, {why}")
    error.endpoint = title
    return error


def actor_number(mesh: ActorMesh[Any]) -> int:
    """The number under which the ranks know the actors of a mesh."""
    return mesh._actor


def _check_class(cls: Any) -> None:
    if not (isinstance(cls, type) and issubclass(cls, Actor)):
        raise ValueError(f"{cls!r} is not an Actor: write `class Name(Actor)`")
    taken = sorted(name for name in cls.endpoints() if hasattr(ActorMesh, name))
    if taken:
        raise ValueError(f"{cls.__name__}: an endpoint cannot be called {taken[0]!r}, meshes use that name themselves")
