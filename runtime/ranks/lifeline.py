"""The lifeline: a pipe whose other end the controller holds, and which kills a rank when the controller is gone.

Linux sends SIGKILL to the rank's whole process group by itself (`O_ASYNC` with `F_SETSIG`), so also when the rank hangs
in C code with the GIL held or has all signals blocked. Owner and signal belong to the open file description, which is
shared by all ranks: each reopens the pipe to have its own. Elsewhere a thread waits for the pipe's end, and needs the
GIL when it comes.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
from _thread import start_new_thread

_F_SETSIG = 10


def arm(fd: int) -> int:
    """Tie the life of this process group to the other end of the pipe `fd`; the descriptor that stays open for it."""
    if sys.platform != "linux":
        start_new_thread(_end_with, (fd,))  # not a `threading.Thread`: no list of the user's threads shows it
        return fd
    own = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    os.close(fd)
    fcntl.fcntl(own, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(own, _F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(own, fcntl.F_SETFL, fcntl.fcntl(own, fcntl.F_GETFL) | os.O_ASYNC)
    # The controller may have died before the signal was armed.
    poll = select.poll()
    poll.register(own, select.POLLHUP)
    if poll.poll(0):
        os._exit(0)
    return own


def _end_with(fd: int) -> None:
    """End this process group when the other end of the pipe `fd`, to which nobody writes, is gone."""
    os.read(fd, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)
