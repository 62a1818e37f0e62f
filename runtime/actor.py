"""Actors: objects that live on ranks and answer calls.

The names are Monarch's (`Actor`, `endpoint`), so that a class written for it works here.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar, overload

P = ParamSpec("P")
R = TypeVar("R")


class EndpointProperty(Generic[P, R]):
    """A method that can be called from elsewhere; made by `@endpoint`."""

    def __init__(self, method: Callable[P, R], *, on_control: bool = False) -> None:
        self.method = method
        self.on_control = on_control
        self.__doc__ = method.__doc__
        self.signature = inspect.signature(method)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name


@overload
def endpoint(method: Callable[P, R], /) -> EndpointProperty[P, R]: ...
@overload
def endpoint() -> Callable[[Callable[P, R]], EndpointProperty[P, R]]: ...
def endpoint(method: Callable[..., Any] | None = None, /) -> Any:
    """Make a method of an `Actor` callable from elsewhere.

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
    return EndpointProperty if method is None else EndpointProperty(method)


def control_endpoint(method: Callable[P, R], /) -> EndpointProperty[P, R]:
    """An endpoint that the control thread of a rank answers, also while the actor is busy or stuck.

    It runs beside the actor's own code: it may read its state, must not wait for it, and must not change it.
    """
    return EndpointProperty(method, on_control=True)


class Actor:
    """The base of all actors: state on each rank of a mesh, with endpoints to be called."""

    logger: ClassVar[logging.Logger]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.logger = logging.getLogger(cls.__name__)

    @classmethod
    def endpoints(cls) -> dict[str, EndpointProperty[Any, Any]]:
        """All endpoints of the class by name, inherited ones included."""
        found: dict[str, EndpointProperty[Any, Any]] = {}
        for base in reversed(cls.__mro__):
            for name, member in vars(base).items():
                if isinstance(member, EndpointProperty):
                    found[name] = member
        return found
