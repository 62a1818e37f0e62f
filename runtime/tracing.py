"""Spans and meters of OpenTelemetry, in programs that have it; without it they do nothing, and cost next to nothing."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar, overload

from .scope import context

F = TypeVar("F", bound=Callable[..., Any])

SCOPE = "meshbook"
"""Who makes the spans and measures, as an exporter names it."""


def span(name: str, **attributes: object) -> AbstractContextManager[Any]:
    """A span of this name around a `with` block, with the actor and the rank that run it.

    Example:
        >>> with span("load", shards=4):
        ...     pass
    """
    api = _api("trace")
    if api is None:
        return nullcontext()
    return api.get_tracer(SCOPE).start_as_current_span(name, attributes={**_where(), **attributes})


@overload
def traced(fn: F) -> F: ...
@overload
def traced(fn: None = None, *, name: str | None = None) -> Callable[[F], F]: ...
def traced(fn: Any = None, *, name: str | None = None) -> Any:
    """Decorates a function, sync or async, with a span of its name or of another one around each call.

    Example:
        >>> @traced(name="step")
        ... def train(x):
        ...     return x + 1
        >>> train(1)
        2
    """
    if fn is None:
        return functools.partial(traced, name=name)
    if _api("trace") is None:
        return fn
    title = name or fn.__name__
    if inspect.iscoroutinefunction(fn):

        @functools.wraps(fn)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            with span(title):
                return await fn(*args, **kwargs)

        return awaited

    @functools.wraps(fn)
    def called(*args: Any, **kwargs: Any) -> Any:
        with span(title):
            return fn(*args, **kwargs)

    return called


def get_meter() -> Any:
    """OpenTelemetry's meter for this process; without OpenTelemetry one whose instruments record nothing.

    Example:
        >>> get_meter().create_counter("steps").add(1)
    """
    api = _api("metrics")
    return api.get_meter(SCOPE) if api is not None else _Silent()


def _where() -> dict[str, object]:
    instance = context().actor_instance
    if instance.class_name is None:
        return {}
    return {"meshbook.actor": instance.name, "meshbook.rank": instance.rank.rank}


@functools.cache
def _api(part: str) -> Any:
    try:
        return importlib.import_module(f"opentelemetry.{part}")
    except ImportError:
        return None


class _Silent:
    """Makes instruments that record nothing."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: self if name.startswith("create_") else None
