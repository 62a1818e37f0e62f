"""Descriptors that an agent opens for its ranks: pipes for what they print, ports where they meet, room for all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import socket

from ..errors import SpawnError

_FDS_A_RANK = 6
_FDS_GIVEN_BACK = 4
"""Those that are closed for sure when a rank ends: its lanes and pipes."""
_LEAST_SPARE = 64
"""Files beside those of ranks: we have 24 open, for a moment or for good, and the program some."""
_SPARE = 256
_F_SETPIPE_SZ = 1031

PIPE_BYTES = 1 << 20
"""What a pipe of a rank holds at most."""


def output_pipe() -> tuple[int, int]:
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(PermissionError):  # over the user's limit for pipes: a smaller one only blocks sooner
            fcntl.fcntl(write_end, _F_SETPIPE_SZ, PIPE_BYTES)
    return read_end, write_end


class HeldPorts:
    """Two ports that stay ours: where ranks meet, and where scripts meet that the ranks start, each one.

    Rank 0 serves its store on the very socket of the first. The other is what `MASTER_PORT` names. Nobody listens
    there, so that such a script may, as under torchrun: torch binds its own with SO_REUSEADDR, too.
    """

    def __init__(self, addr: str = "127.0.0.1") -> None:
        self.store, self._scripts = socket.create_server((addr, 0), backlog=1024), socket.socket()
        try:
            self._scripts.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._scripts.bind((addr, 0))
        except BaseException:
            self.close()
            raise
        self.numbers: tuple[int, int] = self.store.getsockname()[1], self._scripts.getsockname()[1]

    def close(self) -> None:
        self.store.close()
        self._scripts.close()


def make_room(num_ranks: int, num_again: int = 0) -> None:
    """Raise the soft limit of open files if so many more ranks would not fit, `num_again` in the place of living ones.

    Raises `SpawnError` where that does not help: the hard limit is the administrator's word.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = new_limit(num_ranks + num_again, _num_open() - _FDS_GIVEN_BACK * num_again, soft, hard)
    if limit != soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _num_open() -> int:
    try:
        return len(os.listdir("/dev/fd"))
    except FileNotFoundError:  # in a chroot or a sandbox: ranks could not watch for the end of who has started them
        raise SpawnError("there is no /dev/fd here, and ranks need it: mount /proc, to which it leads") from None


def new_limit(num_ranks: int, num_open: int, soft: int, hard: int) -> int:
    """What the soft limit of open files is to be, so that these ranks fit; one that is not above 0 is none.

    Raises `SpawnError` where they do not.

    Example:
        >>> new_limit(100, 12, 1024, 4096), new_limit(500, 12, 1024, 4096), new_limit(2, 12, 256, 256)
        (1024, 4096, 256)
        >>> new_limit(40, 12, 256, 256)
        Traceback (most recent call last):
        meshbook.runtime.errors.SpawnError: 40 ranks need 316 open files and this process may have 256: \
ask for at most 30 ranks, or raise `ulimit -n`
    """
    taken = num_open + _FDS_A_RANK * num_ranks
    if 0 < hard < taken + _LEAST_SPARE:
        fitting = (hard - num_open - _LEAST_SPARE) // _FDS_A_RANK
        fewer = f"ask for at most {fitting} rank{'s' * (fitting != 1)}, or " if fitting > 0 else ""
        raise SpawnError(
            f"{num_ranks} rank{'s need' if num_ranks != 1 else ' needs'} {taken + _LEAST_SPARE} open files and this "
            f"process may have {hard}: {fewer}raise `ulimit -n`"
        )
    wanted = taken + _SPARE
    if not 0 < soft < wanted:
        return soft
    return min(wanted * 2, hard) if hard > 0 else wanted * 2
