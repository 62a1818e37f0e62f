"""The write end of a pipe that all of a process may write to, and descriptors 0 to 2 whatever code does to them."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import sys
import termios
from collections import deque
from contextlib import suppress
from os import write  # not by its module: a cell that puts another there would end the rank at its next print

_NOTHING = bytearray(4)


class Pipe:
    """The write end of a pipe. Writes all it is given, over interrupts too; once nobody reads, drops it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.unsent: deque[bytes | memoryview] = deque()
        self._count = bytearray(4)

    def own(self) -> None:
        """A descriptor that no `dup2` on fds 1 and 2 turns away and no subprocess inherits."""
        copy = fcntl.fcntl(self.fd, fcntl.F_DUPFD_CLOEXEC, 3)
        if self.fd > 2:
            os.close(self.fd)
        self.fd = copy

    def has_unread(self) -> bool:
        """Whether the controller has not read all that anybody wrote; where only the reader is told: perhaps."""
        if sys.platform != "linux":
            return True
        fcntl.ioctl(self.fd, termios.FIONREAD, self._count)
        return self._count != _NOTHING

    def send(self) -> None:
        while self.unsent:
            data = memoryview(self.unsent[0])
            size = len(data)
            # `extend(map(...))` keeps the result even when a KeyboardInterrupt strikes as `write` returns
            # (an assignment would lose it, and the text would come twice); `finally` makes no call for the same.
            done: list[int] = []
            try:
                done.extend(map(write, (self.fd,), (data,)))
            except BlockingIOError:  # a subprocess made the shared pipe non-blocking
                _wait_writable(self.fd)
            except OSError as error:
                if error.errno not in (errno.EPIPE, errno.EBADF):
                    raise
                self.unsent.clear()  # the controller is gone, and this rank with it
            finally:
                if done and done[0] == size:
                    del self.unsent[0]
                elif done:
                    self.unsent[0] = data[done[0] :]


class Standard:
    """Descriptors 0, 1 and 2. One that code has closed comes back before a connection gets its number.

    Else what is printed by C or a subprocess would go into that connection, to another rank.
    """

    def __init__(self) -> None:
        self._poll = select.poll()  # tells in one call which of them are closed
        self._outputs: dict[int, Pipe] = {}

    def watch(self, outputs: dict[int, Pipe]) -> None:
        self._outputs = outputs
        for fd in (0, *outputs):
            self._poll.register(fd, 0)

    def mend(self) -> None:
        """Put back those that are closed; what has been opened under their numbers meanwhile is the user's."""
        for fd, event in self._poll.poll(0):
            if event & select.POLLNVAL:
                with suppress(OSError):  # no descriptor is left: there is no connection either that could get it
                    self._put_back(fd)

    def _put_back(self, fd: int) -> None:
        pipe = self._outputs.get(fd)
        # Both give the lowest number that is free.
        new = os.open(os.devnull, os.O_RDONLY) if pipe is None else fcntl.fcntl(pipe.fd, fcntl.F_DUPFD, fd)
        if new == fd:
            os.set_inheritable(fd, True)
        else:
            os.close(new)


def _wait_writable(fd: int) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    poll.poll()
