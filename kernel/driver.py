"""Waiting for a run that is driven: by blocking, on a thread of its own, or as an awaited cell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

from .drive import Drive
from .stopping.stop_button import StopButton

_SPRINT = 0.004
"""Seconds that an awaited cell blocks at first: most answer in that time, and a turn of the kernel's loop is dear."""

_BREATH = 0.01
"""Seconds that an awaited cell lets go by between hearing that a rank says something and looking: more may follow."""


def drive(drive: Drive) -> None:
    """Wait for the run on this thread. Ctrl-C interrupts the ranks and is then raised again by the caller."""
    with StopButton() as button:
        drive_by(button, drive)


def drive_by(button: StopButton, drive: Drive) -> None:
    """The same for who has counted presses since the run was sent."""
    with closing(drive.steps()) as steps:
        try:
            seconds = next(steps)
            while True:
                _wait(drive, seconds, button)
                seconds = steps.send(button.take())
        except StopIteration:
            _heed_rest(drive, button)


def _heed_rest(drive: Drive, button: StopButton) -> None:
    """A press that came too late for the ranks does not for the cells that wait behind this one."""
    if button.take():
        drive.patience.reason, drive.struck = "user", ()


def _wait(drive: Drive, seconds: float, button: StopButton) -> None:
    try:
        drive.mesh.roster.reactor.wait(drive.run.news, seconds)
    except KeyboardInterrupt:
        button.press()


def drive_in_background(drive: Drive) -> None:
    """The same on a thread that nobody waits for; it leaves the loop to those who are waited for."""
    drive.is_background = True
    with closing(drive.steps()) as steps, suppress(StopIteration):
        seconds = next(steps)
        while True:
            drive.run.news.wait(seconds)
            seconds = steps.send(0)


async def drive_async(drive: Drive) -> None:
    """The same for an awaited cell: the kernel's loop goes on, so widgets work and interrupts are seen."""
    steps = drive.steps()
    news, loop = asyncio.Event(), asyncio.get_running_loop()

    def soon(call: Callable[..., object], *args: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: the front-end has dropped the subshell that this cell is in
            loop.call_soon_threadsafe(call, *args)

    with closing(steps), StopButton(lambda: soon(news.set)) as button:
        _wait(drive, _SPRINT, button)
        try:
            seconds = next(steps)
            if num_presses := button.take():
                seconds = steps.send(num_presses)
            drive.run.on_trouble = lambda: soon(news.set)
            drive.run.on_said = lambda: soon(loop.call_later, _BREATH, news.set)
            if drive.run.has_more:  # it came during the sprint
                news.set()
            drive.run.finished.add_done_callback(lambda _: soon(news.set))
            while True:
                num_cancels = await _pause(news, seconds)
                seconds = steps.send(num_cancels + button.take())
        except StopIteration:
            _heed_rest(drive, button)
        finally:
            drive.run.on_trouble = drive.run.on_said = None  # the loop may be closed when a rank that was given up ends


async def _pause(news: asyncio.Event, seconds: float) -> int:
    """Wait for news or until time is up; how often the task was cancelled meanwhile: as good as a press."""
    task = asyncio.current_task()
    try:
        async with asyncio.timeout(seconds):  # `wait_for` loses what comes with news, on Python 3.11
            await news.wait()
        news.clear()
    except TimeoutError:
        return 0
    except (asyncio.CancelledError, KeyboardInterrupt):  # from before our handler was there, or in a subshell
        if task is not None:
            task.uncancel()
        return 1
    return 0
