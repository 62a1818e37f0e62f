"""Descriptors that an agent opens for its ranks: pipes for what they print, a port where they meet, room for all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import socket

from ..errors import SpawnError

_FDS_A_RANK = 6
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


def held_port(addr: str = "127.0.0.1") -> socket.socket:
    """A free port that stays ours: rank 0 serves `MASTER_PORT` on this very socket."""
    held = socket.socket()
    held.bind((addr, 0))
    held.listen(1024)
    return held


def make_room(num_ranks: int) -> None:
    """Raise the soft limit of open files if so many more ranks would not fit.

    Raises `SpawnError` where that does not help: the hard limit is the administrator's word.
    """
    more = _FDS_A_RANK * num_ranks
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(os.listdir("/dev/fd")) + more + 256
    if 0 < hard < needed:
        raise SpawnError(
            f"{num_ranks} ranks need {needed} open files and this process may have {hard}: "
            f"ask for at most {max(0, (hard - needed + more) // _FDS_A_RANK)} ranks, or raise `ulimit -n`"
        )
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed * 2, hard) if hard > 0 else needed * 2, hard))
