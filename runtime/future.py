"""Futures: the answer to a call, for code that blocks, code that awaits, and both at once."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Generator
from typing import Any, Generic, NoReturn, TypeVar

from .wire.reactor import Reactor

R = TypeVar("R")

Waiter = Callable[[threading.Event, float | None], bool]


class Future(Generic[R]):
    """What a call will come to. `get()` blocks, `await` does not; both may be used any number of times.

    Futures are made by calls (`mesh.actor.endpoint.call(...)`), never directly. Dropping one cancels nothing.

    Example:
        >>> promise = Promise()
        >>> promise.resolve(3)
        >>> promise.future.get(), promise.future.exception()
        (3, None)
    """

    __slots__ = ("_callbacks", "_done", "_error", "_event", "_lock", "_value", "_wait")

    _value: R

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise TypeError("a Future comes from a call, such as actor.endpoint.call(...): it cannot be made directly")

    def done(self) -> bool:
        """Whether the answer is there."""
        return self._done

    def get(self, timeout: float | None = None) -> R:
        """The answer; waits up to `timeout` seconds for it.

        Raises:
            TimeoutError: it did not come in time; the call goes on, and may be waited for again.
            ValueError: `timeout` is negative or not finite.
            Exception: what the call failed with.
        """
        if not self._done:
            self._block(timeout)
        if self._error is not None:
            raise self._error
        return self._value

    def result(self, timeout: float | None = None) -> R:
        """The same as `get`."""
        return self.get(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the call failed with, or None; waits like `get`."""
        if not self._done:
            self._block(timeout)
        return self._error

    def _block(self, timeout: float | None) -> None:
        if timeout is not None and not (math.isfinite(timeout) and timeout >= 0):
            raise ValueError(f"timeout must be a number of seconds that is not negative, not {timeout!r}")
        with self._lock:
            if self._event is None:
                self._event = threading.Event()
                if self._done:
                    self._event.set()
        if not self._wait(self._event, timeout):
            raise TimeoutError

    def add_done_callback(self, call: Callable[[Future[R]], object]) -> None:
        """Run `call(self)` when the answer is there: at once, or on the thread that brings it."""
        with self._lock:
            if not self._done:
                self._callbacks.append(call)
                return
        call(self)

    def as_asyncio(self) -> asyncio.Future[R]:
        """An `asyncio.Future` of the running loop. Cancelling it leaves the call alone.

        Raises:
            RuntimeError: no loop runs on this thread.
        """
        loop = asyncio.get_running_loop()
        twin: asyncio.Future[R] = loop.create_future()

        def settle() -> None:
            if twin.done():
                return
            if self._error is not None:
                twin.set_exception(self._error)
            else:
                twin.set_result(self._value)

        def hand_over(_: object) -> None:
            try:
                loop.call_soon_threadsafe(settle)
            except RuntimeError:  # the loop was closed while the call ran: nobody observes it there any more
                return

        if self._done:
            settle()
        else:
            self.add_done_callback(hand_over)
        return twin

    def __await__(self) -> Generator[Any, None, R]:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise ValueError("__await__ with no active event loop: use .get() here") from None
        return self.as_asyncio().__await__()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Future cannot be pickled: send its value")

    def __repr__(self) -> str:
        if not self._done:
            return "<Future: waiting>"
        return f"<Future: failed: {self._error!r}>" if self._error is not None else f"<Future: {self._value!r}>"


class Promise(Generic[R]):
    """The other side of a future: whoever makes the answer holds it, and settles it once."""

    __slots__ = ("future",)

    def __init__(self, reactor: Reactor | None = None) -> None:
        future: Future[R] = Future.__new__(Future)
        future._lock = threading.Lock()
        future._done = False
        future._error = None
        future._event = None
        future._callbacks = []
        future._wait = reactor.wait if reactor is not None else _wait_event
        self.future = future

    def resolve(self, value: R) -> None:
        """Settle with a value; settling a second time changes nothing."""
        self._settle(value, None)

    def fail(self, error: BaseException) -> None:
        """Settle with an error."""
        self._settle(None, error)

    def _settle(self, value: Any, error: BaseException | None) -> None:
        future = self.future
        with future._lock:
            if future._done:
                return
            future._value, future._error = value, error
            future._done = True
            callbacks, future._callbacks = future._callbacks, []
            if future._event is not None:
                future._event.set()
        for call in callbacks:
            call(future)


def _wait_event(event: threading.Event, timeout: float | None) -> bool:
    return event.wait(timeout)
