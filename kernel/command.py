"""A shell command of a cell, `!cmd`: run to its end, or ended by an interrupt."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from types import FrameType


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
    try:
        if came and callable(handler):
            handler(signal.SIGINT, came[0])
        return child.wait()
    except BaseException:
        child.kill()
        child.wait()
        raise
