"""What a thread dies of is told with the lines of its cell, which the hook of Python before 3.13 does not know."""

from __future__ import annotations

import sys
import threading
import traceback
from types import TracebackType

from .users import is_users


def install() -> None:
    """From now on in this process, unless somebody tells of it in another way already."""
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = tell


def tell(args: threading.ExceptHookArgs) -> None:
    """Write the traceback to stderr; of a thread of ours all of it, of another one what is the user's and below."""
    error = args.exc_value
    if error is None or isinstance(error, SystemExit):
        return
    tb = args.exc_traceback
    shown = traceback.format_exception(args.exc_type, error, _from_users(tb) or tb)
    name = args.thread.name if args.thread is not None else "that has ended"
    sys.stderr.write(f"Exception in thread {name}:\n{''.join(shown)}")  # at once: of many ranks it is read whole


def _from_users(tb: TracebackType | None) -> TracebackType | None:
    while tb is not None and not is_users(tb.tb_frame.f_code.co_filename):
        tb = tb.tb_next
    return tb
