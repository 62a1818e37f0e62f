"""`returns_future`: an async function as one that returns a `Future`."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from .future import Future, Promise

P = ParamSpec("P")
R = TypeVar("R")


def returns_future(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Future[R]]:
    """Make an `async def` return a `Future`, so that callers may block on it or await it.

    In a running event loop its body becomes a task there; elsewhere it runs at once, on this thread.

    Example:
        >>> @returns_future
        ... async def double(x):
        ...     return 2 * x
        >>> double(4).get()
        8
    """

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Future[R]:
        promise: Promise[R] = Promise()
        work = _settle(promise, function(*args, **kwargs))
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            asyncio.run(work)
        else:
            task = loop.create_task(work)
            promise.keep(task)
        return promise.future

    return wrapped


async def _settle(promise: Promise[R], work: Coroutine[Any, Any, R]) -> None:
    try:
        promise.resolve(await work)
    except Exception as error:  # noqa: BLE001 - it is the caller's, who gets it from the future
        promise.fail(error)
