"""The event loop of a rank's cells: one for all, so that a lock or task of one is of use in the next."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any

GRACE = 1.0
"""Seconds that an interrupted cell's `finally` and `except CancelledError` may take."""


class CellLoop:
    """Runs the coroutines of cells, on the thread that runs the cells. Between cells the loop stands still.

    With `may_nest`, library code may call `asyncio.run` inside an awaited cell. That patches asyncio in the
    whole process (nest-asyncio): right for a rank, where user code owns the main thread; wrong for a
    notebook's own kernel.

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
        place = _Place()
        task = loop.create_task(place.watch(coroutine))
        try:
            return loop.run_until_complete(task)
        except KeyboardInterrupt as stop:
            if task.done():
                raise  # it hit a line of the cell, and is already where the user looks
            self._end(loop, task)
            raise stop.with_traceback(place.reached) from None
        finally:
            place.reached = None

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
        elif not task.cancelled():
            task.exception()  # asked for, so that asyncio does not complain that nobody did


class _Place:
    """Where in the user's code a cancelled coroutine was: the interrupt only hit the loop's `select`."""

    def __init__(self) -> None:
        self.reached: TracebackType | None = None

    async def watch(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await coroutine
        except asyncio.CancelledError as cancelled:
            self.reached = cancelled.__traceback__
            raise


def _let_loops_nest(loop: asyncio.AbstractEventLoop) -> None:
    import nest_asyncio  # pyright: ignore[reportMissingTypeStubs]

    nest_asyncio.apply(loop)  # pyright: ignore[reportUnknownMemberType]
