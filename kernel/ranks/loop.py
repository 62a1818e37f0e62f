"""The event loop of a rank's cells: one for all, so that a lock or task of one is of use in the next."""

from __future__ import annotations

import asyncio
import threading
from asyncio.selector_events import BaseSelectorEventLoop
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager, nullcontext
from types import FrameType, TracebackType
from typing import Any

from ...runtime.ranks.place import Opened
from ...runtime.ranks.stacks import is_of_loop
from ...runtime.system.ours import is_ours
from ...runtime.wire import sigint
from ...runtime.wire.deferred import untorn
from ..failures.failure import tell_lone

GRACE = 1.0
"""Seconds that a cell which was interrupted twice may still take for its `finally`."""


class CellLoop:
    """Runs the coroutines of cells, on the thread that runs the cells; between cells, what they have left.

    With `may_nest`, library code may call `asyncio.run` inside an awaited cell. That patches asyncio in the whole
    process (nest-asyncio): right for a rank, where user code owns the main thread; wrong for a notebook's own kernel.

    >>> loop = CellLoop(may_nest=False)
    >>> loop.run(asyncio.sleep(0, "slept"))
    'slept'
    >>> loop.close()
    """

    def __init__(self, *, may_nest: bool) -> None:
        self._may_nest = may_nest
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """What the coroutine returns or raises; SIGINT ends its `await` as a `KeyboardInterrupt` there."""
        try:
            loop = self._started()
        except BaseException:
            coroutine.close()  # else Python complains that nobody has awaited it
            raise
        watch = _Watch(loop, coroutine)
        try:
            with _heeding(watch.meets):
                return loop.run_until_complete(watch.task)
        except asyncio.CancelledError:
            if not watch.is_interrupted:
                raise  # the cell itself was cancelled, by the cell
            raise KeyboardInterrupt().with_traceback(watch.reached) from None
        except KeyboardInterrupt as stop:
            if watch.task.done():
                raise  # it hit a line of the cell, and is already where the user looks
            self._end(loop, watch.task)
            raise stop.with_traceback(watch.reached) from None
        finally:
            watch.forget()

    def has_any(self) -> bool:
        """Have cells left something: a task, a timer, a socket that the loop looks at?

        A loop that is not asyncio's own stands still between cells: uvloop makes the descriptors that it looks at
        non-blocking, for all who use them.
        """
        loop = self._loop
        return isinstance(loop, BaseSelectorEventLoop) and not loop.is_closed() and _has_work(loop)

    def go_on(self, until: Sequence[int], opened: Opened = nullcontext) -> None:
        """Let it go on until one of these descriptors is readable; inside of `opened()` it may be interrupted."""
        loop: Any = self._loop
        for fd in until:
            loop.add_reader(fd, loop.stop)
        try:
            with _heeding(_is_at_work), opened():
                loop.run_forever()
        except (KeyboardInterrupt, SystemExit) as end:  # all else, asyncio tells of by itself
            tell_lone(end)
        finally:
            # Left so when an error ends a loop that may nest: the next cell's would stop at once.
            loop._stopping = False
            for fd in until:
                loop.remove_reader(fd)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    @untorn  # a loop that is half made complains when it is collected, and asyncio is not to be half patched
    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
            if self._may_nest:
                _let_loops_nest(self._loop)
        return self._loop

    def _end(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
        """Cancel the task; if it will not go, leave the loop to it: the next cell gets a new one."""
        task.cancel()
        loop.run_until_complete(asyncio.wait([task], timeout=GRACE))
        if not task.done():
            self._loop = None


class _Watch:
    """Over one coroutine: how it is interrupted, and where in the user's code it then was."""

    def __init__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._loop = loop
        self._watched = self._watch(coroutine)
        self.task = loop.create_task(self._watched)
        self.reached: TracebackType | None = None
        self.is_interrupted = False

    async def _watch(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await coroutine
        except asyncio.CancelledError as cancelled:
            self.reached = cancelled.__traceback__
            raise

    def forget(self) -> None:
        """The coroutine has ended, or is left to itself."""
        self.reached = None  # its frames hold the cell's tensors
        if self.task.done() and not self.task.cancelled():
            self.task.exception()  # asked for: else asyncio complains, whenever the task is collected, that nobody did

    def meets(self, frame: FrameType | None) -> bool:
        """Whether an interrupt is raised at once, in a line of the cell; else it cancels the task.

        Raised in the loop's own code, it can fall between a task and its next step, which then never comes. (The idea
        is that of `asyncio.Runner`.)
        """
        if self._watched.cr_running or self.is_interrupted:
            return True
        self.is_interrupted = True
        self._loop.call_soon_threadsafe(self.task.cancel)  # threadsafe: it also wakes the loop
        return False


@contextmanager
def _heeding(meets: Callable[[FrameType | None], bool]) -> Generator[None]:
    """While a loop runs inside, an interrupt is raised only where `meets` says so."""
    handler = sigint.handler()
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)  # it decides whether the interrupt is meant for us
        except KeyboardInterrupt:
            if meets(frame):
                raise

    sigint.let(on_signal)
    try:
        yield
    finally:
        sigint.let(handler)


def _is_at_work(frame: FrameType | None) -> bool:
    """Does the loop run a task or a callback, rather than code of its own?"""
    while frame is not None and frame.f_code is not _GOES_ON:
        file = frame.f_code.co_filename
        if not is_of_loop(file) and not is_ours(file):
            return True
        frame = frame.f_back
    return False


_GOES_ON = CellLoop.go_on.__code__


def _has_work(loop: Any) -> bool:
    looks_at_others = len(loop._selector.get_map()) > 1  # itself has a socket to be woken by
    has_timers = any(not timer.cancelled() for timer in loop._scheduled)
    return looks_at_others or has_timers or bool(loop._ready or asyncio.all_tasks(loop))


def _let_loops_nest(loop: asyncio.AbstractEventLoop) -> None:
    if not isinstance(loop, asyncio.BaseEventLoop):  # it is refused
        return
    import nest_asyncio  # pyright: ignore[reportMissingTypeStubs]

    nest_asyncio.apply(loop)  # pyright: ignore[reportUnknownMemberType]
