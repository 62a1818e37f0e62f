"""The streams of the program itself: it may have none, may have closed them, and they may not know all of Unicode."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO


def keep_places() -> None:
    """Open fds 0 to 2 to nothing where the program was started without them.

    What is opened next would get their numbers: a socket of ours would be what C code prints to.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
            os.set_inheritable(fd, True)


def write(stream: str, text: str) -> None:
    """Put text out on `stdout` or `stderr`, with escapes for what these cannot say; nowhere, if nobody reads them."""
    target = _streams().get(stream)
    if target is None:
        return
    with contextlib.suppress(OSError, ValueError):  # nobody reads it any more, or the program has closed it
        try:
            target.write(text)
        except UnicodeEncodeError:
            coding = getattr(target, "encoding", None) or "ascii"
            target.write(text.encode(coding, "backslashreplace").decode(coding))
        put_out(target)


def flush() -> None:
    """Put out what the program itself has printed."""
    for target in _streams().values():
        with contextlib.suppress(OSError, ValueError):  # as above
            put_out(target)


def put_out(target: TextIO) -> None:
    """Flush a stream, if it can: what stands in place of one may have `write` alone, all that `print` needs."""
    if callable(flush := getattr(target, "flush", None)):
        flush()


def _streams() -> dict[str, TextIO]:
    found: dict[str, TextIO | None] = {"stdout": sys.stdout, "stderr": sys.stderr}
    return {name: stream for name, stream in found.items() if stream is not None}
