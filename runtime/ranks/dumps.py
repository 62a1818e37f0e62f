"""The stack of a rank that cannot answer, because C code holds the GIL: it is asked for by a signal.

`faulthandler` answers in its signal handler, in C, into a memory file of the rank. The controller finds that file in
`/proc` and reads it there: no descriptor, no message, and no memory until it is used. A call of C code that a signal
ends (`nanosleep`, `poll`) ends early; what holds the GIL otherwise (a regular expression, a power of integers) does not
notice. Linux only.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from ..system.crash import frame_in
from ..system.libc import libc
from .stacks import Spot, Spots

_NAME = "meshbook-stack"
_LINK = f"/memfd:{_NAME} (deleted)"
_HEAD = "Stack (most recent call first):\n"
_LARGEST = 1 << 20
_STEP = 0.001
"""Seconds between two looks at what has been written."""


def signal_number() -> int:
    """The signal that asks for the stack: not SIGUSR1 or SIGUSR2, which job schedulers and trainers use."""
    return signal.SIGRTMIN + 6


def install() -> None:
    """Answer to the signal from now on; in the rank, once."""
    if sys.platform == "linux":
        import fcntl

        try:
            fd = os.memfd_create(_NAME)
        except OSError:  # a sandbox forbids it: a rank that cannot answer has no stack then, and lives
            return
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)  # whoever reads may truncate
        faulthandler.register(signal_number(), file=fd, all_threads=False, chain=False)


@dataclass(frozen=True, slots=True)
class Process:
    """What `/proc` tells of a process: the letter of its state, and what its main thread does with our signal."""

    state: str
    catches: bool

    @classmethod
    def read(cls, pid: int) -> Process | None:
        """None when there is no such process, or this system does not tell."""
        try:
            with open(f"/proc/{pid}/status") as file:
                return cls.parse(file.read())
        except OSError:
            return None

    @classmethod
    def parse(cls, status: str) -> Process:
        """Read the text of `/proc/PID/status`.

        Example:
            >>> Process.parse("State:\\tT (stopped)\\nSigBlk:\\t0000000000000000\\nSigCgt:\\t0000000000000000\\n")
            Process(state='T', catches=False)
        """
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        bit = 1 << (signal_number() - 1)
        is_caught = bool(int(fields.get("SigCgt", "0"), 16) & bit)
        is_blocked = bool(int(fields.get("SigBlk", "0"), 16) & bit)
        return cls(fields.get("State", "?").strip()[:1], is_caught and not is_blocked)


def take(pids: Mapping[int, int], timeout: float) -> dict[int, Spots]:
    """The stacks of these main threads (pid by rank), of those that tell within `timeout` seconds."""
    with contextlib.ExitStack() as stack:
        asked = {rank: fd for rank, pid in pids.items() if (fd := _ask(pid, stack)) is not None}
        found: dict[int, Spots] = {}
        deadline = time.monotonic() + timeout
        while len(found) < len(asked):
            is_last = time.monotonic() > deadline
            for rank in asked.keys() - found.keys():
                spots = parse(os.pread(asked[rank], _LARGEST, 0).decode("ascii", "replace"), is_last)
                if spots:
                    found[rank] = spots
            if is_last:
                break
            time.sleep(_STEP)
        return found


def parse(text: str, is_all: bool = False) -> Spots:
    """The first stack in a text, outermost frame first; empty while it may not be complete.

    The rank is asked twice: where the second stack begins, the first one has ended. With `is_all` there comes no more.

    Example:
        >>> one = 'Stack (most recent call first):\\n  File "a.py", line 3 in inner\\n  File "a.py", line 7 in main\\n'
        >>> parse(one), [spot.name for spot in parse(one + one)]
        ((), ['main', 'inner'])
    """
    parts = text.split(_HEAD)
    if len(parts) < 2 or (len(parts) == 2 and not (is_all and text.endswith("\n"))):
        return ()
    found = [place for line in parts[1].splitlines() if (place := frame_in(line))]
    return tuple(Spot(place.file, place.line, place.name) for place in reversed(found))


def _ask(pid: int, stack: contextlib.ExitStack) -> int | None:
    """Ask a process twice; the descriptor to read its answer from, None if it cannot be asked."""
    process = Process.read(pid)
    path = _answer_of(pid)
    if process is None or not process.catches or path is None:
        return None  # the signal would end a process that has no handler for it
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_TRUNC)
    except OSError:
        return None  # it has ended, or is not ours to look at
    stack.callback(os.close, fd)
    return fd if all(_signal_main_thread(pid) for _ in range(2)) else None


def _signal_main_thread(pid: int) -> bool:
    """Whether it was sent. Not by `kill`: while one waits for the main thread, the next goes to another thread."""
    return hasattr(libc(), "tgkill") and libc().tgkill(pid, pid, signal_number()) == 0


def _answer_of(pid: int) -> str | None:
    folder = f"/proc/{pid}/fd"
    try:
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                if os.readlink(f"{folder}/{name}") == _LINK:
                    return f"{folder}/{name}"
    except OSError:
        return None
    return None
