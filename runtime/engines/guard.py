"""A process that ends others when this one is gone: for those that a library has started, which know no lifeline."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from ..system.forks import let_go_in_child

_PROGRAM = """
import contextlib, os, signal, sys
held = {}
for pid in map(int, sys.argv[1:]):
    with contextlib.suppress(ProcessLookupError):
        held[pid] = os.pidfd_open(pid)
print("ready", flush=True)
sys.stdin.read()
for pid, fd in held.items():
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(fd, signal.SIGKILL)
"""
"""It waits for the end of its standard input, which is that of the process that holds the other end."""


class Guard:
    """Watches over processes of this machine; `close` ends those that still live."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, *map(str, pids)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Jupyter's interrupt signals the kernel's whole process group
        )
        assert self._process.stdout is not None
        with self._process.stdout as said:
            said.readline()  # from here on it holds them: a pid that is given again is no other's
        let_go_in_child(self)

    def let_go(self) -> None:
        """In a forked child: that it lives on must not hold the guard back."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def close(self) -> None:
        """End them, and wait until the guard is gone too."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
