# pyright: reportPrivateUsage=false
# Meshes and endpoints keep their members private, for the reason that `adverbs` gives.

"""Methods of an actor that are no endpoints: what a mesh has in their place, and `as_endpoint`, which calls them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from types import FunctionType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeAlias, TypeVar, cast, overload

from .actor import EndpointProperty
from .adverbs import Endpoint
from .errors import checks_for_caller, marked

if TYPE_CHECKING:
    from .channel import Port
    from .mesh import ActorMesh

P = ParamSpec("P")
R = TypeVar("R")

Method: TypeAlias = "FunctionType | staticmethod[..., Any] | classmethod[Any, ..., Any]"
"""A method as it stands in its class."""


class NotAnEndpoint:
    """A plain method of an actor, reached through its mesh: it says how it can be called."""

    def __init__(self, mesh: ActorMesh[Any], name: str, method: Method) -> None:
        self._mesh = mesh
        self._name = name
        self._method = method

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = f"{self._mesh.__name__}.{self._name}"
        how = f"add a @endpoint decorator to it, or directly wrap it in one: as_endpoint(mesh.{self._name}).call(...)"
        raise marked(RuntimeError(f"{name} is not annotated as an endpoint. To call it as one, {how}"))


@overload
def as_endpoint(not_an_endpoint: Endpoint[P, R]) -> Endpoint[P, R]: ...
@overload
def as_endpoint(
    not_an_endpoint: Callable[P, Coroutine[Any, Any, R]],
    *,
    propagate: object = None,
    explicit_response_port: Literal[False] = False,
) -> Endpoint[P, R]: ...
@overload
def as_endpoint(
    not_an_endpoint: Callable[P, R], *, propagate: object = None, explicit_response_port: Literal[False] = False
) -> Endpoint[P, R]: ...
@overload
def as_endpoint(
    not_an_endpoint: Callable[Concatenate[Port[R], P], object],
    *,
    propagate: object = None,
    explicit_response_port: Literal[True],
) -> Endpoint[P, R]: ...
@checks_for_caller
def as_endpoint(
    not_an_endpoint: Any, *, propagate: object = None, explicit_response_port: bool = False
) -> Endpoint[Any, Any]:
    """A plain method of an actor as an endpoint: `as_endpoint(mesh.method).call(...)`."""
    if isinstance(not_an_endpoint, Endpoint):
        return cast("Endpoint[Any, Any]", not_an_endpoint)
    if not isinstance(not_an_endpoint, NotAnEndpoint):
        raise ValueError(f"as_endpoint takes a method of a spawned actor, such as mesh.method, not {not_an_endpoint!r}")
    method = not_an_endpoint._method
    declared: EndpointProperty[Any, Any] = EndpointProperty(
        method if inspect.isfunction(method) else method.__func__,
        propagate=propagate,
        explicit_response_port=explicit_response_port,
        is_bare=True,
        has_self=not isinstance(method, staticmethod),
    )
    return Endpoint(not_an_endpoint._mesh, not_an_endpoint._name, declared)
