"""Futures: the answer to a call, for code that blocks, code that awaits, and both at once."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NoReturn, TypeVar

from . import meanwhile
from .errors import mark, marked
from .wire.awake import has_room
from .wire.reactor import Reactor, contained

R = TypeVar("R")
V = TypeVar("V")

ON_ITS_WAY = 5.0
"""Seconds that an actor waits, in a later turn, for the answer to a call of its own."""

_blank: Callable[[Any], Any] = object.__new__


class Future(Generic[R]):
    """What a call will come to. `get()` blocks, `await` does not; both may be used any number of times.

    Futures are made by calls (`mesh.endpoint.call(...)`), never directly. Dropping one cancels nothing.

    Example:
        >>> promise = Promise()
        >>> promise.resolve(3)
        >>> promise.future.get(), promise.future.exception()
        (3, None)
    """

    __slots__ = ("_promise",)

    _promise: Promise[R]

    @staticmethod
    def of_promise(promise: Promise[Any]) -> Future[Any]:
        """The future of a promise."""
        future = _blank(Future)
        future._promise = promise
        return future

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise marked(
            TypeError("Future objects come from calls, such as mesh.step.call(...), and cannot be constructed directly")
        )

    def done(self) -> bool:
        """Whether the answer is there."""
        return self._promise.is_there

    def get(self, timeout: float | None = None) -> R:
        """The answer; waits up to `timeout` seconds for it.

        Raises:
            TimeoutError: it did not come in time; the call goes on, and may be waited for again.
            ValueError: `timeout` is negative or not finite.
            Exception: what the call failed with.
        """
        __tracebackhide__ = True  # IPython leaves such frames out: who waits wants to see the own line, and the error
        promise = self._promise
        try:
            promise.block(timeout)
        except BaseException as error:
            mark[-1](error)
            raise
        if promise.error is not None:
            mark[-1](promise.error)
            try:
                raise promise.error.with_traceback(None)  # each raise would add its frames to those of the last
            finally:
                # The error's traceback has this frame: a circle, broken as in `concurrent.futures`. Who prints the
                # traceback looks for the arguments.
                self = promise = None  # pyright: ignore[reportAssignmentType]
        return promise.value

    def result(self, timeout: float | None = None) -> R:
        """The same as `get`."""
        return self.get(timeout)

    def exception(self, timeout: float | None = None) -> Exception | None:
        """What the call failed with, or None; waits like `get`, and gives its `TimeoutError`, as Monarch does.

        What is no `Exception` is raised.
        """
        __tracebackhide__ = True
        try:
            self._promise.block(timeout)
        except TimeoutError as too_late:
            return too_late
        error = self._promise.error
        if error is not None and not isinstance(error, Exception):
            raise error
        return error

    def add_done_callback(self, call: Callable[[Future[R]], object]) -> None:
        """Run `call(self)` when the answer is there: at once, or on the thread that brings it.

        What it raises is reported on stderr, and stops nothing.
        """
        self._promise.when_there(lambda: call(self))

    def as_asyncio(self) -> asyncio.Future[R]:
        """An `asyncio.Future` of the running loop. Cancelling it leaves the call alone.

        Raises:
            RuntimeError: no loop runs on this thread.
        """
        loop = _running_loop()
        twin: asyncio.Future[R] = loop.create_future()
        if self._promise.is_there:
            self._promise.hand_to(twin)
        else:
            promise = self._promise

            def hand_over() -> None:
                _call_soon(loop, lambda: promise.hand_to(twin))

            promise.when_there(hand_over)
            twin.add_done_callback(lambda _: promise.forget(hand_over))
        return twin

    def __await__(self) -> Generator[Any, None, R]:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise ValueError("__await__ with no active event loop: use .get() here") from None
        promise = self._promise
        twin = self.as_asyncio()
        if (ban := promise.forbidden) is not None and not promise.is_there and ban.is_of(asyncio.current_task()):
            asyncio.get_running_loop().call_later(ban.seconds(), _refuse, twin, ban.why)
        return twin.__await__()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Future cannot be pickled: send its value")

    def __repr__(self) -> str:
        promise = self._promise
        if not promise.is_there:
            return "<Future: waiting>"
        return f"<Future: failed: {promise.error!r}>" if promise.error is not None else f"<Future: {promise.value!r}>"


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError("as_asyncio() requires a running asyncio event loop: use .get() here") from None


def done(value: V) -> Future[V]:
    """A future whose answer is there."""
    promise: Promise[V] = Promise()
    promise.resolve(value)
    return promise.future


def check_timeout(timeout: float) -> None:
    """Raises `ValueError` for what is no number of seconds to wait, `TypeError` for what is no number."""
    try:
        is_fine = math.isfinite(timeout) and timeout >= 0
    except TypeError:
        raise TypeError(f"timeout must be a number of seconds, not {timeout!r}") from None
    if not is_fine:
        raise ValueError(f"invalid timeout {timeout!r}: it must be a number of seconds that is not negative")


@dataclass(frozen=True, slots=True)
class _Ban:
    """Who must not wait for an answer, as it cannot come before the one who waits is done."""

    why: str
    thread: int
    task: asyncio.Task[Any] | None
    is_same_turn: Callable[[], bool]

    def is_of(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether this is a turn of the same actor: those of an actor that takes turns are called the same."""
        is_alike = task is not None and self.task is not None and task.get_name() == self.task.get_name()
        return is_alike and threading.get_ident() == self.thread

    def seconds(self) -> float:
        """How long an answer that has been given may be on its way."""
        return 0.0 if self.is_same_turn() else ON_ITS_WAY


class Promise(Generic[R]):
    """The other side of a future: whoever makes the answer holds it, and settles it once.

    It comes over the loop of this `reactor`, if there is one, from `num_ranks` ranks, if so many will answer soon.
    """

    __slots__ = (
        "_bell",
        "_callbacks",
        "_is_waited_for",
        "_num_ranks",
        "_reactor",
        "_settling",
        "_struck",
        "error",
        "forbidden",
        "is_there",
        "on_interrupt",
        "value",
    )

    late: ClassVar[str] = "no answer after {:g} s; the call goes on, and may be waited for again"
    """What who waits is told after so many seconds."""

    def __init__(self, reactor: Reactor | None = None, num_ranks: int = 0) -> None:
        self.is_there = False
        """Whether it has been settled."""
        self.value: Any = None
        self.error: BaseException | None = None
        self.forbidden: _Ban | None = None
        self.on_interrupt: Callable[[], object] | None = None
        """Called where Ctrl-C ends the wait for it."""
        self._reactor = reactor
        self._num_ranks = num_ranks
        self._settling = threading.Lock()  # taken by the first who settles, and never given back
        self._is_waited_for = False
        self._struck: frozenset[int] = frozenset()  # the threads that are to wait no more
        self._bell: threading.Event | None = None  # where no loop brings the answer
        self._callbacks: list[Callable[[], object]] | None = None

    @property
    def future(self) -> Future[R]:
        """For who waits for the answer."""
        return Future.of_promise(self)

    def keep(self, task: object) -> None:
        """Hold on to what works on the answer until it is there."""
        self.when_there(lambda: task)

    def forbid(self, why: str, task: asyncio.Task[Any] | None, is_same_turn: Callable[[], bool]) -> None:
        """Blocking on the future from this thread, or awaiting it in a task like this one, would never end.

        `RuntimeError` is raised there instead: at once while it is the same turn of an actor. In a later one the call
        may have been answered already, and then the answer comes in a moment.
        """
        self.forbidden = _Ban(why, threading.get_ident(), task, is_same_turn)

    def resolve(self, value: R) -> None:
        """Settle with a value; settling a second time changes nothing."""
        self._settle(value, None)

    def fail(self, error: BaseException) -> None:
        """Settle with an error."""
        self._settle(None, error)

    def follow(self, future: Future[Any], value: R) -> None:
        """Settle as `future` does: with its error, or with this value where it has one."""

        def settle(settled: Future[Any]) -> None:
            error = settled.exception()
            self.resolve(value) if error is None else self.fail(error)

        future.add_done_callback(settle)

    def block(self, timeout: float | None) -> None:
        """Wait until it is settled. Raises `TimeoutError`, and `RuntimeError` where that would never end."""
        __tracebackhide__ = True
        if timeout is not None:
            check_timeout(timeout)
        if self.is_there:
            return
        if (ban := self.forbidden) is not None and ban.thread == threading.get_ident():
            seconds = ban.seconds()
            if timeout is None or timeout >= seconds:
                self._wait(seconds)
                if self._struck:
                    self._heed_strike()
                if not self.is_there:
                    raise RuntimeError(ban.why)
                return
        try:
            is_there = self._wait(timeout)
            while self._struck or (is_there and not self.is_there):
                self._heed_strike()
                if self.is_there:  # who is meant by a strike that stays has left the wait
                    return
                is_there = self._wait(timeout)
        except KeyboardInterrupt:
            if self.on_interrupt is not None:
                self.on_interrupt()
            raise
        if not is_there:
            raise TimeoutError(self.late.format(timeout))

    def _wait(self, timeout: float | None) -> bool:
        __tracebackhide__ = True
        if self._reactor is None:
            return self._ready_bell().wait(timeout)
        self._is_waited_for = True  # before another look: who settles looks at it after `is_there` was set
        stays_awake = self._num_ranks > 0 and has_room(self._num_ranks)
        return meanwhile.wait(self._reactor, self, timeout, stays_awake=stays_awake)

    def _ready_bell(self) -> threading.Event:
        with _asking:
            is_new, bell = self._bell is None, self._bell or threading.Event()
            self._bell = bell
        if is_new:
            self.when_there(bell.set)
            if self._struck:  # who strikes has found no bell yet
                bell.set()
        return bell

    def is_set(self) -> bool:
        """As a loop asks what it waits for."""
        return self.is_there or bool(self._struck)

    def strike(self, thread: int) -> None:
        """From another thread: raise `KeyboardInterrupt` in this one, which blocks on it. It may wait again later.

        It does so when it is next awake: `heed_strikes` wakes it.
        """
        self._struck |= {thread}

    def heed_strikes(self) -> None:
        """Wake who waits."""
        if self._reactor is not None:
            self._reactor.wake()
        elif self._bell is not None:
            self._bell.set()

    def _heed_strike(self) -> None:
        """Raise if this thread is meant; else give the one that is a moment to have heard it."""
        if (thread := threading.get_ident()) not in self._struck:
            time.sleep(0.001)
            return
        self._struck -= {thread}
        if self._bell is not None and not self.is_there:
            self._bell.clear()
            if self.is_there:  # it came just then
                self._bell.set()
        raise KeyboardInterrupt("interrupted")

    def when_there(self, call: Callable[[], object]) -> None:
        """Run `call` when it is settled: at once, or on the thread that settles it."""
        with _asking:
            if self._callbacks is None:
                self._callbacks = []
            self._callbacks.append(call)
        if self.is_there:
            _call_each(self._callbacks)

    def forget(self, call: Callable[[], object]) -> None:
        """Whoever has asked for this call is not interested any more."""
        with contextlib.suppress(ValueError), _asking:
            (self._callbacks or []).remove(call)

    def hand_to(self, twin: asyncio.Future[Any]) -> None:
        """Settle this future of a loop like this promise."""
        if twin.done():
            return
        if self.error is not None:
            mark[-1](self.error)
            error = self.error.with_traceback(None)  # where it was made is no business of who awaits it
            if isinstance(error, StopIteration):  # it would end a coroutine, and asyncio takes none
                error, cause = RuntimeError(f"{type(error).__name__}: {error}"), error
                error.__cause__ = cause
            twin.set_exception(error)
        else:
            twin.set_result(self.value)

    def _settle(self, value: object, error: BaseException | None) -> None:
        if not self._settling.acquire(blocking=False):
            return
        self.value, self.error = value, error
        self.is_there = True
        if self._is_waited_for and self._reactor is not None:
            self._reactor.wake()
        if self._callbacks:
            _call_each(self._callbacks)


# Two threads may ask for the first callback of a promise: most promises have none. Reentrant, as the collector may run
# a `__del__` inside that asks for another's.
_asking = threading.RLock()


def _call_each(callbacks: list[Callable[[], object]]) -> None:
    """Each once, whoever comes first: who settles the promise, or who asks for a callback meanwhile."""
    while callbacks:
        try:
            call = callbacks.pop(0)
        except IndexError:  # the other one has taken the last
            return
        contained(call)


def _refuse(twin: asyncio.Future[Any], why: str) -> None:
    if not twin.done():
        twin.set_exception(RuntimeError(why))


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:  # the loop was closed while the call ran: nobody observes the answer there any more
        return
