"""The plain cell that awaits something now: the user can be asked in it although its code is not running."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

TICK = 0.1
"""Seconds until a stop button is noticed in a cell that awaits something. (It is not at all with ipykernel 7 alone.)"""


@dataclass(eq=False, slots=True)
class _Cell:
    loop: asyncio.AbstractEventLoop
    task: asyncio.Task[Any] | None
    context: contextvars.Context
    """In it the kernel knows whose cell it is: where questions go."""
    is_stopped: bool = False
    """Has the user pressed stop where something was asked?"""


class AwaitingCell:
    """The cell that runs on the kernel's main thread, if one does; cells of subshells run beside it."""

    def __init__(self, shell: Any, on_tick: Callable[[], object]) -> None:
        """`on_tick` is called while the cell awaits, in its place."""
        self._shell = shell
        self._on_tick = on_tick
        self._now: _Cell | None = None

    def load(self) -> None:
        self._shell.events.register("pre_run_cell", self._begin)
        self._shell.events.register("post_run_cell", self._end)

    def unload(self) -> None:
        self._shell.events.unregister("pre_run_cell", self._begin)
        self._shell.events.unregister("post_run_cell", self._end)
        self._now = None  # of the cell that unloads us nobody tells the end

    def _begin(self, *_: object) -> None:
        if threading.current_thread() is threading.main_thread():
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:  # a terminal: nothing runs beside a cell
                return
            self._now = _Cell(loop, asyncio.current_task(), contextvars.copy_context())
            self._tick(self._now)

    def _end(self, *_: object) -> None:
        if threading.current_thread() is threading.main_thread():
            self._now = None

    def _tick(self, now: _Cell) -> None:
        """Keep the loop of a cell that awaits from sleeping on: the stop button would be noticed at its end only."""
        if self._now is now:
            now.loop.call_later(TICK, self._tick, now)
            self._call(now, self._on_tick, lambda: None)

    def call(self, call: Callable[[], object], on_stop: Callable[[], object]) -> None:
        """As soon as the cell awaits, call this on its thread, as if the cell did; never when it has ended before.

        When the user presses stop meanwhile, `on_stop` is called, and the cell ends; for what comes after that, too.
        """
        now = self._now
        if now is not None:
            now.loop.call_soon_threadsafe(self._ask, now, call, on_stop, context=now.context)

    def _ask(self, now: _Cell, call: Callable[[], object], on_stop: Callable[[], object]) -> None:
        if self._now is now and now.is_stopped:  # a rank that stopped a moment later
            on_stop()
        else:
            self._call(now, call, on_stop)

    def _call(self, now: _Cell, call: Callable[[], object], on_stop: Callable[[], object]) -> None:
        if self._now is not now:
            return
        try:
            call()
        except KeyboardInterrupt:  # it would end the kernel's loop
            now.is_stopped = True
            on_stop()
            if now.task is not None:
                now.task.cancel()
