"""Actors: objects that live on ranks and answer calls.

The names are Monarch's (`Actor`, `endpoint`, ...), so that a class written for it works here.
"""

from __future__ import annotations

import inspect
import logging
from abc import ABC
from collections.abc import Awaitable, Callable, Coroutine
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    Literal,
    NoReturn,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    cast,
    overload,
)

from .errors import marked

if TYPE_CHECKING:
    from .adverbs import Endpoint
    from .channel import Port
    from .future import Future
    from .shape import Extent
    from .supervision import MeshFailure

P = ParamSpec("P")
R = TypeVar("R")


WITH_PORT = "(port)"
"""Ends the name of a plain method that is called with a port to answer through."""

GIVEN_PORT = "(given port)"
"""Ends the name of an endpoint whose first argument is the port that it answers through, as often as it wants."""


KEPT = "(kept)"
"""Ends the name of an endpoint whose first argument keeps what it gives, on its rank (`tensors.kept.Keep`)."""


def plain_name(wire_name: str) -> str:
    """The name of the method that a call names."""
    return wire_name.partition("(")[0]


class EndpointProperty(Generic[P, R]):
    """A method that can be called from elsewhere; made by `@endpoint`."""

    def __init__(
        self,
        method: Callable[..., Any],
        *,
        propagate: object = None,
        explicit_response_port: bool = False,
        is_concurrent: bool = False,
        on_control: bool = False,
        is_bare: bool = False,
        has_self: bool = True,
    ) -> None:
        _check_method(method)
        self.method = method
        self.propagate = propagate
        self.explicit_response_port = explicit_response_port
        self.is_concurrent = is_concurrent
        self.on_control = on_control
        self.is_bare = is_bare
        self._lead = (None,) * (has_self + explicit_response_port)  # what the caller does not pass
        self.is_async = inspect.iscoroutinefunction(method)
        self.__doc__ = method.__doc__
        self._signature = inspect.signature(method)
        self._is_plain = _takes_anything_positional(self._signature)

    if TYPE_CHECKING:

        def __get__(self, instance: object, owner: type | None = None) -> Endpoint[P, R]:
            """On a mesh, which looks like its class to a type checker, an endpoint is called by an adverb."""
            ...

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        """What `self.step(...)` in the actor itself comes to."""
        name = getattr(self.method, "__name__", "this")
        raise TypeError(
            f"{name} is an endpoint, which its actor cannot call as a method: put what {name} does into a plain method "
            f"that both call, or say type(self).{name}.method(self, ...)"
        )

    @property
    def _method(self) -> Callable[..., Any]:
        """By Monarch's name of it, by which `super().step._method(self)` calls what an actor has overridden."""
        return self.method

    @property
    def arguments(self) -> str:
        """What a caller passes, as it is written: `(n, times=1)`."""
        parameters = list(self._signature.parameters.values())
        left = [p.replace(annotation=_as_written(p.annotation)) for p in parameters]
        returns = _as_written(self._signature.return_annotation)
        return str(self._signature.replace(parameters=left[len(self._lead) :], return_annotation=returns))

    def wire_name(self, name: str) -> str:
        """How a call names it. A plain method has no mark on the rank that says whether it wants a port."""
        return name + WITH_PORT if self.is_bare and self.explicit_response_port else name

    def check(self, title: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raises `TypeError`, for an endpoint of this name, where the arguments do not fit; nothing is sent then."""
        if kwargs or len(args) + len(self._lead) not in self._is_plain:
            try:
                self._signature.bind(*self._lead, *args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{title}() {error}") from None


def _check_method(method: object) -> None:
    """Raises `TypeError` for what is called without the actor: an endpoint is called with it."""
    kind = type(method).__name__
    if isinstance(method, classmethod | staticmethod):
        name = cast("Any", method).__qualname__
        raise marked(
            TypeError(f"an endpoint is a method of the actor, and {name} is a {kind}: write def ...(self, ...)")
        )
    if not callable(method):
        raise marked(TypeError(f"an endpoint is a method of the actor, not {kind} {method!r}"))


class _Written:
    """An annotation that is text, as with `from __future__ import annotations`; shown without quotes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _as_written(annotation: object) -> object:
    return _Written(annotation) if isinstance(annotation, str) else annotation


def _takes_anything_positional(signature: inspect.Signature) -> range:
    """The numbers of positional arguments that surely fit: binding costs more than the rest of a call's preparation."""
    parameters = list(signature.parameters.values())
    if any(p.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD for p in parameters):
        return range(0)
    needed = sum(1 for p in parameters if p.default is inspect.Parameter.empty)
    return range(needed, len(parameters) + 1)


if TYPE_CHECKING:
    Awaited = Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]
    """An `async def` method that answers R."""

    class _ToEndpoint(Protocol):
        """What `@endpoint` with options is."""

        @overload
        def __call__(self, method: Awaited[P, R], /) -> EndpointProperty[P, R]: ...
        @overload
        def __call__(self, method: Callable[Concatenate[Any, P], R], /) -> EndpointProperty[P, R]: ...

    class _ToPortedEndpoint(Protocol):
        """The same with `explicit_response_port`: the port says what is answered."""

        def __call__(self, method: Callable[Concatenate[Any, Port[R], P], object], /) -> EndpointProperty[P, R]: ...

    class _ToConcurrentEndpoint(Protocol):
        def __call__(self, method: Awaited[P, R], /) -> EndpointProperty[P, R]: ...


@overload
def endpoint(method: Awaited[P, R], /) -> EndpointProperty[P, R]: ...
@overload
def endpoint(method: Callable[Concatenate[Any, P], R], /) -> EndpointProperty[P, R]: ...
@overload
def endpoint(
    *, propagate: object = None, explicit_response_port: Literal[False] = False, instrument: bool = True
) -> _ToEndpoint: ...
@overload
def endpoint(
    *, propagate: object = None, explicit_response_port: Literal[True], instrument: bool = True
) -> _ToPortedEndpoint: ...
def endpoint(
    method: Callable[..., Any] | None = None,
    *,
    propagate: object = None,
    explicit_response_port: bool = False,
    instrument: bool = True,
) -> Any:
    """Make a method of an `Actor` callable from elsewhere.

    With `explicit_response_port` the method gets a `Port` first and answers through it, whenever it wants.
    `propagate` says for `rref` which shapes it gives. `instrument` is Monarch's; it means nothing here.

    Example:
        >>> class Counter(Actor):
        ...     def __init__(self, start):
        ...         self.value = start
        ...     @endpoint
        ...     def add(self, n):
        ...         self.value += n
        ...         return self.value
        >>> sorted(Counter.endpoints())
        ['add']
    """

    def wrap(method: Callable[..., Any]) -> EndpointProperty[..., Any]:
        if isinstance(method, EndpointProperty):
            raise ValueError("@endpoint stands on an endpoint already: write one decorator")
        return EndpointProperty(method, propagate=propagate, explicit_response_port=explicit_response_port)

    return wrap if method is None else wrap(method)


@overload
def concurrent_endpoint(method: Awaited[P, R], /) -> EndpointProperty[P, R]: ...
@overload
def concurrent_endpoint(
    *, propagate: object = None, explicit_response_port: Literal[False] = False, instrument: bool = True
) -> _ToConcurrentEndpoint: ...
@overload
def concurrent_endpoint(
    *, propagate: object = None, explicit_response_port: Literal[True], instrument: bool = True
) -> _ToPortedEndpoint: ...
def concurrent_endpoint(
    method: Callable[..., Any] | None = None,
    *,
    propagate: object = None,
    explicit_response_port: bool = False,
    instrument: bool = True,
) -> Any:
    """An async endpoint whose calls overlap: the actor takes the next message while one waits.

    Raises:
        ValueError: the method is not `async def`, or is an endpoint already.
    """

    def wrap(method: Callable[..., Any]) -> EndpointProperty[..., Any]:
        if isinstance(method, EndpointProperty):
            raise ValueError(
                "concurrent_endpoint does not wrap @endpoint: write @concurrent_endpoint alone, with its options"
            )
        if not inspect.iscoroutinefunction(method):
            raise ValueError(f"concurrent_endpoint can only wrap async endpoints: write `async def {method.__name__}`")
        return EndpointProperty(
            method, propagate=propagate, explicit_response_port=explicit_response_port, is_concurrent=True
        )

    return wrap if method is None else wrap(method)


def control_endpoint(method: Callable[..., Any], /) -> EndpointProperty[..., Any]:
    """An endpoint that the control thread of a rank answers, also while the actor is busy or stuck.

    It runs beside the actor's own code: it may read its state, must not wait for it, and must not change it.
    """
    return EndpointProperty(method, on_control=True)


if TYPE_CHECKING:

    class _Seen:
        """What `ProcMesh.spawn` returns has these beside the endpoints of the class, for which it is typed."""

        @property
        def initialized(self) -> Future[None]: ...
        @property
        def sizes(self) -> dict[str, int]: ...
        @property
        def extent(self) -> Extent: ...
        def slice(self, **selectors: Any) -> Self: ...
        def split(self, **changes: Any) -> Self: ...
        def flatten(self, name: str) -> Self: ...
        def rename(self, **names: str) -> Self: ...
        def size(self, dim: Any = None) -> int: ...
        def stop(self, reason: str = ...) -> Future[None]: ...
        def __len__(self) -> int: ...

else:
    _Seen = ABC


class Actor(_Seen):
    """The base of all actors: state on each rank of a mesh, with endpoints to be called.

    Endpoints of one actor run one at a time, on a thread of its own. They are all `def`, or all `async def`; then they
    run on an event loop of the actor's own.

    Two methods may be given: `__supervise__(self, failure)` hears of failures of meshes that this actor made, and
    returns True where it has dealt with one; `__cleanup__(self, exc)` runs when the actor is stopped (`exc` is None) or
    has failed.
    """

    logger: ClassVar[logging.Logger] = logging.getLogger("Actor")

    _on_main_thread: ClassVar[bool] = False
    """Whether its endpoints run on the main thread of the rank, as cells do."""
    _is_careful: ClassVar[bool] = False
    """Whether it says itself where in its endpoints user code runs, which alone is interrupted (`Place.opened`).

    Without that, nothing of it is, beside the main thread.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "logger" not in vars(cls):  # else the class means something of its own by that
            cls.logger = logging.getLogger(cls.__name__)
            cls.logger.setLevel(logging.DEBUG)

    @classmethod
    def endpoints(cls) -> dict[str, EndpointProperty[Any, Any]]:
        """All endpoints of the class by name, inherited ones included."""
        return endpoints_of(cls)

    # Also here, so that one that is overridden may call that of its parents.

    def __supervise__(self, failure: MeshFailure) -> bool | Awaitable[bool]:
        """A mesh that this actor made has failed; True: it has dealt with that. By default it has not."""
        return False

    def __cleanup__(self, exc: Exception | None) -> Awaitable[None] | None:
        """The actor ends, or has failed. By default there is nothing to do."""

    def _handle_undeliverable_message(self, message: object) -> bool | Awaitable[bool]:
        """Monarch's; it is not asked here, where who called an actor that is gone is told."""
        return False


def is_on_main_thread(cls: type[Actor]) -> bool:
    """Do endpoints of this class run on the main thread of the rank, as cells do?"""
    return cls._on_main_thread  # pyright: ignore[reportPrivateUsage] - no name that users' classes may want


def is_careful(actor: Actor | type[Actor] | None) -> bool:
    """Does it say itself where in its endpoints user code runs, which alone is interrupted then (`Place.opened`)?"""
    return actor is not None and actor._is_careful  # pyright: ignore[reportPrivateUsage] - as above


_KEPT = "_meshbook_endpoints"


def endpoints_of(cls: type[Actor]) -> dict[str, EndpointProperty[Any, Any]]:
    """`Actor.endpoints` also of a class that means something else by that name."""
    found = cls.__dict__.get(_KEPT)
    if found is None:
        found = _find_endpoints(cls)
        setattr(cls, _KEPT, found)
    return found


def renew_endpoints(cls: type[Actor]) -> None:
    """Look at the class again, which is about to be spawned: its endpoints may have been replaced."""
    found = _find_endpoints(cls)
    if cls.__dict__.get(_KEPT) != found:
        setattr(cls, _KEPT, found)


def _find_endpoints(cls: type) -> dict[str, EndpointProperty[Any, Any]]:
    found: dict[str, EndpointProperty[Any, Any]] = {}
    for base in reversed(cls.__mro__):
        for name, member in vars(base).items():
            if isinstance(member, EndpointProperty):
                found[name] = member
            else:
                found.pop(name, None)  # overridden by a plain method
    return found


def kind_of(cls: type[Actor]) -> str:
    """`sync` or `async`, by the endpoints of the class; as in Monarch `async` where it has none.

    Raises:
        ValueError: it mixes both, or a hook does not match.
    """
    endpoints = {name: ep for name, ep in endpoints_of(cls).items() if not ep.on_control}
    is_async = {name for name, ep in endpoints.items() if ep.is_async}
    if is_async and len(is_async) < len(endpoints):
        sync = sorted(set(endpoints) - is_async)
        raise ValueError(
            f"{cls} mixes both async and sync endpoints. Synchronous endpoints: {sync}, "
            f"async ones: {sorted(is_async)}. Make them all def, or all async def"
        )
    kind = "async" if is_async or not endpoints_of(cls) else "sync"
    _check_hooks(cls, kind if endpoints else "")
    return kind


def _check_hooks(cls: type[Actor], kind: str) -> None:
    cleanup, supervise = cls.__cleanup__, cls.__supervise__
    if cleanup is not Actor.__cleanup__ and kind and inspect.iscoroutinefunction(cleanup) != (kind == "async"):
        other, word = ("a synchronous", "async def") if kind == "async" else ("an async", "def")
        problem = f"{cls} has {kind} endpoints, but {other} __cleanup__"
        raise ValueError(f"{problem}: {cls.__name__}.__cleanup__ must be {word}, like its endpoints")
    if kind == "sync" and inspect.iscoroutinefunction(supervise):
        problem = f"{cls} has sync endpoints, but an async __supervise__"
        raise ValueError(f"{problem}: {cls.__name__}.__supervise__ must be def, like its endpoints")
