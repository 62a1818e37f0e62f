"""`returns_future`: an async function as one that returns a `Future`."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar, cast

from .future import Future, Promise, check_timeout

P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V")

_TOO_LATE = "returns_future operation did not finish in time"


def returns_future(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Future[R]]:
    """Make an `async def` return a `Future`, so that callers may block on it or await it.

    Its body runs when somebody first looks: awaited, as a task of that loop; under `get()`, on the calling thread,
    where the timeout of that `get()` cancels it.

    Example:
        >>> @returns_future
        ... async def double(x):
        ...     return 2 * x
        >>> double(4).get()
        8

    Raises:
        TypeError: the function is not `async def`.
    """
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"returns_future requires an async function: write `async def`, not {function!r}")
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Future[R]:
        try:
            signature.bind(*args, **kwargs)
        except TypeError:
            function(*args, **kwargs).close()  # says it in the words of a call
            raise
        return _Deferred.of(lambda: function(*args, **kwargs))

    return wrapped


class _Deferred(Future[R]):
    """A future whose work begins with its first observer."""

    __slots__ = ("_begin", "_lock")

    _begin: Callable[[], Coroutine[Any, Any, R]] | None
    _lock: threading.Lock  # two threads may look at once: one of them begins

    @staticmethod
    def of(begin: Callable[[], Coroutine[Any, Any, V]]) -> _Deferred[V]:
        made = cast("_Deferred[V]", _Deferred.__new__(_Deferred))
        made._begin, made._lock, made._promise = begin, threading.Lock(), Promise()
        return made

    def get(self, timeout: float | None = None) -> R:
        self._run(timeout)
        return super().get(timeout)

    def exception(self, timeout: float | None = None) -> Exception | None:
        self._run(timeout)
        return super().exception(timeout)

    def as_asyncio(self) -> asyncio.Future[R]:
        loop = asyncio.get_running_loop()
        begin = self._take()
        if begin is not None:
            self._promise.keep(loop.create_task(_settle(self._promise, begin(), None)))
        return super().as_asyncio()

    def _take(self) -> Callable[[], Coroutine[Any, Any, R]] | None:
        with self._lock:
            begin, self._begin = self._begin, None
        return begin

    def _run(self, timeout: float | None) -> None:
        if timeout is not None:
            check_timeout(timeout)
        begin = self._take()
        if begin is None:
            return

        def work() -> None:
            asyncio.run(_settle(self._promise, begin(), timeout))

        if asyncio._get_running_loop() is not None:  # which the body cannot run on while its thread is blocked here
            thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), name="meshbook-body")
            thread.start()
            thread.join()
        else:
            work()


async def _settle(promise: Promise[R], work: Coroutine[Any, Any, R], timeout: float | None) -> None:
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            promise.resolve(await work)
    except Exception as error:  # noqa: BLE001 - it is the caller's, who gets it from the future
        promise.fail(TimeoutError(_TOO_LATE) if limit.expired() else error)
    except BaseException as error:
        promise.fail(error)
        raise
