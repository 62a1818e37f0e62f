"""The threads in which gloo waits for its connections: at rest they wake a hundred times a second, for nothing.

Each looks every 10 ms whether it is to end (gloo/transport/tcp/loop.cc), one for each process group: on 64 ranks with
three groups a fifth of a core. Linux may be told how late a thread's timers may go off, its timer slack (proc(5)). What
comes over a connection wakes a loop as fast as ever; only the end of a group takes that much longer.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

REST = 0.04
"""Seconds by which a look may be late: 20 looks a second."""

_PROMPT = 50e-6  # what Linux gives a thread

_NAME = "gloo_tcp_loop\n"

_TASKS = Path("/proc/self/task")


def rest() -> None:
    """Let all loops of gloo in this process look less often; where that cannot be had, nothing happens."""
    _set_slack(REST)


def hurry() -> None:
    """Let them look as often as they want to: a group is about to end, and waits for the next look."""
    _set_slack(_PROMPT)


def _set_slack(seconds: float) -> None:
    with contextlib.suppress(OSError):  # no Linux, or one that does not have it
        for task in _TASKS.iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
                if (task / "comm").read_text() == _NAME:
                    Path(f"/proc/{task.name}/timerslack_ns").write_text(str(int(seconds * 1e9)))
