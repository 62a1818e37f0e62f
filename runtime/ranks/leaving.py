"""`os._exit` in a rank: the process says from which line it leaves, as it does when it crashes."""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import os
from collections.abc import Callable
from typing import NoReturn

from ..system.crash import LEFT_BY


def install(is_working: Callable[[], object], err_fd: int = 2) -> None:
    """Let this process write its stack to `err_fd` when it calls `os._exit` while `is_working()`.

    Children that it forks (a DataLoader's workers all end so) leave without a word. So does C code that exits.
    """
    pid = os.getpid()
    plain = os._exit

    @functools.wraps(plain)
    def leave(status: int) -> NoReturn:
        if os.getpid() == pid and is_working():
            with contextlib.suppress(OSError):  # nobody reads any more
                os.write(err_fd, f"{LEFT_BY}os._exit({status})\n\n".encode())
                faulthandler.dump_traceback(err_fd, all_threads=False)
        plain(status)

    os._exit = leave
