"""Waiting in torch's stores that a signal can interrupt: for who is to serve one, for who is to join it, for a key.

torch waits for these in C++, where Python's signal handlers do not run, for as long as a group may take: a wrong
address in a script's `init_process_group` cost a rank its state, as nothing but its end would free it. On the main
thread, where signals come, the first two wait in a thread, which may stay behind until its time is over, and a key is
looked for now and then. (A wait for a key in a thread would keep the connection; one in slices is told on stderr,
slice by slice.)
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import wraps
from typing import Any

from .c10d import finishes

_FIRST, _LONGEST = 0.001, 0.05
"""Seconds between two looks for a key: twice as many each time."""

_NEEDED = ("check", "get", "wait", "timeout")


def install() -> bool:
    """Make waiting in stores interruptible in this process; False if this torch lacks what that takes.

    Harmless to call twice.
    """
    c10d: Any = sys.modules.get("torch._C._distributed_c10d")
    store: Any = getattr(c10d, "Store", None)
    if not hasattr(c10d, "TCPStore") or not all(hasattr(store, name) for name in _NEEDED):
        return False
    if not hasattr(store.wait, "__wrapped__"):
        c10d.TCPStore.__init__ = _joining(c10d.TCPStore.__init__)
        store.wait, store.get = _waiting(store.wait), _getting(store.get)
    return True


def _joining(original: Callable[..., None]) -> Callable[..., None]:
    @wraps(original)
    def __init__(self: Any, *args: Any, **options: Any) -> None:
        failed: list[BaseException] = []

        def join() -> None:
            try:
                original(self, *args, **options)
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is for who waits
                failed.append(error)

        if not _is_on_main():
            return original(self, *args, **options)
        finishes(join, math.inf)
        if failed:
            raise failed.pop()
        return None

    return __init__


def _waiting(original: Callable[..., None]) -> Callable[..., None]:
    @wraps(original)
    def wait(self: Any, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        if not _is_on_main():
            return original(self, keys) if timeout is None else original(self, keys, timeout)
        return _look_for(self, list(keys), self.timeout if timeout is None else timeout)

    return wait


def _getting(original: Callable[..., bytes]) -> Callable[..., bytes]:
    @wraps(original)
    def get(self: Any, key: str) -> bytes:
        if _is_on_main():
            _look_for(self, [key], self.timeout)
        return original(self, key)

    return get


def _look_for(store: Any, keys: list[str], timeout: timedelta) -> None:
    """Until all are there. Raises what torch does where they are not in time."""
    deadline, pause = time.monotonic() + timeout.total_seconds(), _FIRST
    while not store.check(keys):
        left = deadline - time.monotonic()
        if left <= 0:
            told = ", ".join(f"/{key}" for key in keys)
            error = getattr(sys.modules["torch._C"], "_DistStoreError", RuntimeError)
            raise error(f"wait timeout after {timeout / timedelta(milliseconds=1):.0f}ms, keys: {told}")
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST)


def _is_on_main() -> bool:
    return threading.current_thread() is threading.main_thread()
