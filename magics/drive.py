"""Driving a run to its end: output shown as it comes, late ranks interrupted, then one result or one error."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from dataclasses import dataclass

from ..kernel.mesh import Mesh
from ..kernel.patience import Patience, Step
from ..kernel.run import Run
from ..widgets.live import Live

TICK = 0.05
"""Seconds between two looks at a running cell: ipykernel sees an interrupt only when its loop wakes."""

_SPRINT = 0.004
"""Seconds that an awaited cell blocks at first: most answer in that time, and a turn of the kernel's loop is dear."""

_TOLD_AFTER = 0.2
"""Seconds after the first failure at which it is told although other ranks still work."""


@dataclass(slots=True)
class Drive:
    """One run with its output and the rule for late ranks. `steps()` says how long to wait next."""

    mesh: Mesh
    run: Run
    live: Live
    patience: Patience
    abandoned: tuple[int, ...] = ()
    waiting: dict[int, str] | None = None
    """Where the ranks were that had to be interrupted."""

    def steps(self) -> Generator[float, bool, None]:
        """Yields seconds to wait for news; is sent whether the user interrupted meanwhile."""
        told = False
        while not self.run.finished.done():
            is_interrupted = yield TICK
            now = time.monotonic()
            self.live.update(self.run.take(), now)
            if self.run.finished.done():
                break
            told = told or self._tell_failure(now)
            self._act(self.patience.step(now, self._has_failure, is_interrupted))
        self.live.update(self.run.take(), time.monotonic())
        self.live.finish(time.monotonic())
        self.run.on_late = self._on_late

    @property
    def _has_failure(self) -> bool:
        return bool(self.run.progress.failed or self.run.progress.lost)

    def _act(self, step: Step) -> None:
        owing = self.run.owing
        if step is Step.INTERRUPT:
            self.waiting = self.mesh.where(owing, timeout=0.2)
            self.mesh.interrupt(owing, self.run.call, timeout=0.2)
        elif step is Step.ABANDON:
            self.abandoned = tuple(owing)
            self.run.abandon()

    def _tell_failure(self, now: float) -> bool:
        """Say who failed while others still work; whether it was said."""
        failed = [*self.run.progress.failed, *self.run.progress.lost]
        if not failed or self.patience.failing_for(now) < _TOLD_AFTER:
            return False
        self.live.tell_failures(self.run.progress, self.run.owing)
        return True

    def _on_late(self) -> None:
        """Output after the end of the cell; on the thread that runs the loop."""
        self.live.late(self.run.take(), time.monotonic())


def drive(drive: Drive) -> None:
    """Wait for the run on this thread. Ctrl-C interrupts the ranks and is then raised again by the caller."""
    steps = drive.steps()
    reactor = drive.mesh.roster.reactor
    is_interrupted = False
    try:
        seconds = next(steps)
        while True:
            try:
                reactor.wait(drive.run.news, seconds)
                is_interrupted = False
            except KeyboardInterrupt:
                is_interrupted = True
            seconds = steps.send(is_interrupted)
    except StopIteration:
        return


async def drive_async(drive: Drive) -> None:
    """The same for an awaited cell: the kernel's loop goes on, so widgets work and interrupts are seen."""
    steps = drive.steps()
    try:
        drive.mesh.roster.reactor.wait(drive.run.news, _SPRINT)
        seconds = next(steps)
        news = asyncio.Event()
        loop = asyncio.get_running_loop()
        drive.run.finished.add_done_callback(lambda _: loop.call_soon_threadsafe(news.set))
        while True:
            seconds = steps.send(await _pause(news, seconds))
    except StopIteration:
        return


async def _pause(news: asyncio.Event, seconds: float) -> bool:
    """Wait for news or until time is up; whether the user interrupted meanwhile."""
    task = asyncio.current_task()
    try:
        await asyncio.wait_for(news.wait(), seconds)
    except TimeoutError:
        return False
    except (asyncio.CancelledError, KeyboardInterrupt):  # ipykernel turns SIGINT into the one or the other
        if task is not None:
            task.uncancel()
        return True
    return False
