"""The threads in which gloo waits for its connections: at rest they wake a hundred times a second, for nothing.

Each looks every 10 ms whether it is to end (gloo/transport/tcp/loop.cc), one for each process group: on 64 ranks with
three groups a fifth of a core. Linux may be told how late a thread's timers may go off, its timer slack (proc(5)). What
comes over a connection wakes a loop as fast as ever; only the end of a group takes that much longer.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Set

REST = 0.02
"""Seconds by which a look may be late: 33 looks a second. Who is released from a collective waits for the next one."""

_PROMPT = 50e-6  # what Linux gives a thread

_DOZE = 3600.0

_dozing: set[str] = set()
"""The threads of groups that were given up: their loops are not waited for any more."""

_NAME = b"gloo_tcp_loop\n"

_TASKS = "/proc/self/task"

_NAMED_WITHIN = 0.02
"""Seconds in which a thread that has just begun says what it is called."""


def threads() -> frozenset[str]:
    """The threads of this process, by number; none where that is not told."""
    try:
        return frozenset(os.listdir(_TASKS))
    except FileNotFoundError:
        return frozenset()


def rest(known: Collection[str] = ()) -> None:
    """Let all loops of gloo in this process look less often; where that cannot be had, nothing happens.

    Threads that are not `known` may have no name of their own yet: they are waited for.
    """
    deadline = time.monotonic() + _NAMED_WITHIN
    while known and _has_nameless(threads() - set(known)) and time.monotonic() < deadline:
        time.sleep(0.0005)
    _set_slack(REST)


def hurry() -> None:
    """Let them look as often as they want to: a group is about to end, and waits for the next look."""
    _set_slack(_PROMPT)


def doze(given_up: Set[str]) -> None:
    """Let those among these threads look next to never: their groups are not used any more, and never end.

    Of a group that may end the loop must not: who lets go of it waits for the loop's next look.
    """
    _set_slack(_DOZE, given_up)
    _dozing.update(given_up)


def _has_nameless(threads: Collection[str]) -> bool:
    with open("/proc/self/comm", "rb", buffering=0) as comm:
        own = comm.read()
    return any(_name_of(thread) == own for thread in threads)


def _name_of(thread: str) -> bytes:
    with (
        contextlib.suppress(FileNotFoundError, ProcessLookupError),  # it has ended meanwhile
        open(f"{_TASKS}/{thread}/comm", "rb", buffering=0) as comm,
    ):
        return comm.read()
    return b""


def _set_slack(seconds: float, of: Set[str] | None = None) -> None:
    for thread in (threads() if of is None else of) - _dozing:
        with contextlib.suppress(OSError):  # it has ended meanwhile, or the system is one that does not have it
            if _name_of(thread) == _NAME:
                with open(f"/proc/{thread}/timerslack_ns", "wb", buffering=0) as slack:
                    slack.write(b"%d" % int(seconds * 1e9))
