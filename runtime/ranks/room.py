"""Room for descriptors: each time that process groups are renewed, a rank has some more open for good."""

from __future__ import annotations

import errno
import os
import resource


def make_room(count: int) -> None:
    """Raise the soft limit of open files if so many more would not fit.

    Raises `OSError` where that does not help: gloo would not tell who waits for a connection that could not be had.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = limit_for(len(os.listdir("/dev/fd")) + count, soft, hard)
    if limit != soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def limit_for(wanted: int, soft: int, hard: int) -> int:
    """What the soft limit is to be; one that is not above 0 is none.

    Example:
        >>> limit_for(800, 1024, 4096), limit_for(1500, 1024, 4096), limit_for(9999, -1, -1)
        (1024, 3000, -1)
        >>> limit_for(1500, 1024, 1024)
        Traceback (most recent call last):
        OSError: [Errno 24] it needs 1500 open files and may have 1024: `%mesh restart` gives ranks that have few open
    """
    if not 0 < soft < wanted:
        return soft
    if 0 < hard < wanted:
        text = f"it needs {wanted} open files and may have {hard}: `%mesh restart` gives ranks that have few open"
        raise OSError(errno.EMFILE, text)
    return min(2 * wanted, hard) if hard > 0 else 2 * wanted
