"""A shell command of a cell, `!cmd`: run to its end, or ended by an interrupt with all that it has started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from types import FrameType
from typing import Any

from ...runtime.ranks.offspring import tends

PATIENCE = 0.4
"""Seconds that a command may take to end after an interrupt, for a script to tidy up. Then the user would be asked."""


def code_of(command: str) -> int:
    """Run a shell command to its end. An interrupt ends it too, also one that comes while it is being started."""
    came: list[FrameType | None] = []
    handler = signal.getsignal(signal.SIGINT)
    holds = threading.current_thread() is threading.main_thread() and callable(handler)
    if holds:
        # Raised inside `Popen`, an interrupt would leave a child that nobody knows of.
        signal.signal(signal.SIGINT, lambda _, frame: came.append(frame))
    try:
        child = subprocess.Popen(command, shell=True, executable=os.environ.get("SHELL"))
    finally:
        if holds:
            signal.signal(signal.SIGINT, handler)
    with tends(child.pid):
        try:
            if came and callable(handler):
                handler(signal.SIGINT, came[0])
            return child.wait()
        except BaseException:
            _end(child)
            raise


def _end(child: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C in a terminal, which all processes of a command hear; what is left of them later is killed.

    Another interrupt kills at once. The shell alone would leave what it runs, and torchrun its workers.
    """
    import psutil

    family = _family(child.pid)
    try:
        for each in family:
            _signal(each, signal.SIGINT)
        psutil.wait_procs(family, timeout=PATIENCE)
    finally:
        for each in {*family, *_family(child.pid)}:
            _signal(each, signal.SIGKILL)
        child.wait()


def _family(pid: int) -> list[Any]:
    """A process of ours and all below it, as psutil has them: also their start times, so that a pid names no other."""
    import psutil

    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _signal(process: Any, signum: int) -> None:
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(signum)
