"""Children of user code on a rank: those that it forks end with its call.

A fork that came to the end of its call would answer over the socket of the rank, and take its next messages.
"""

from __future__ import annotations

import os
import sys
import traceback

from ..cells import readable
from .failure import cut

_rank = 0  # the process that is the rank; 0: ranks are threads here


def note_rank() -> None:
    """This process is a rank."""
    global _rank
    _rank = os.getpid()


def is_child() -> bool:
    """Has a rank forked this process?"""
    return _rank not in (0, os.getpid())


def end_child(error: BaseException | None) -> None:
    """User code has returned, or raised this. In a child of the rank that is the end, as it is of a Python program."""
    if not is_child():
        return
    try:
        _tell(error)
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    finally:  # whatever became of its streams: it must not go on as the rank
        os._exit(_status_of(error))


def _tell(error: BaseException | None) -> None:
    if isinstance(error, SystemExit):
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
    elif error is not None:
        told = traceback.format_exception(type(error), error, cut(error.__traceback__))
        print(readable("".join(told)), end="", file=sys.stderr)


def _status_of(error: BaseException | None) -> int:
    """What Python ends with.

    Example:
        >>> _status_of(None), _status_of(ValueError()), _status_of(SystemExit(3)), _status_of(SystemExit("no"))
        (0, 1, 3, 1)
    """
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return int(error is not None)
