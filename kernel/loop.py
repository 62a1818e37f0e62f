"""The event loop of a rank's cells: one for all, so that a lock or task of one is of use in the next."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from ..runtime.wire import sigint

GRACE = 1.0
"""Seconds that a cell which was interrupted twice may still take for its `finally`."""


class CellLoop:
    """Runs the coroutines of cells, on the thread that runs the cells. Between cells the loop stands still.

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
        loop = self._started()
        watch = _Watch(loop, coroutine)
        try:
            with watch.over_sigint():
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

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()
            self._loop = None

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

    @contextmanager
    def over_sigint(self) -> Generator[None]:
        """While the loop's own code runs, an interrupt cancels the task instead of being raised.

        Raised there, it can fall between a task and its next step, which then never comes. (The idea is that of
        `asyncio.Runner`; other than there, a line of the cell itself is still interrupted at once.)
        """
        handler = sigint.handler()
        if threading.current_thread() is not threading.main_thread() or not callable(handler):
            yield
            return

        def on_signal(number: int, frame: FrameType | None) -> None:
            try:
                handler(number, frame)  # it decides whether the interrupt is meant for us
            except KeyboardInterrupt:
                if self._watched.cr_running or self.is_interrupted:
                    raise
                self.is_interrupted = True
                self._loop.call_soon_threadsafe(self.task.cancel)  # threadsafe: it also wakes the loop

        sigint.let(on_signal)
        try:
            yield
        finally:
            sigint.let(handler)


def _let_loops_nest(loop: asyncio.AbstractEventLoop) -> None:
    import nest_asyncio  # pyright: ignore[reportMissingTypeStubs]

    nest_asyncio.apply(loop)  # pyright: ignore[reportUnknownMemberType]
