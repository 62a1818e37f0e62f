"""Whether this very thread is in the midst of what a lock guards: who interrupts it there must not wait for it.

That is a signal handler, or a `__del__` that the garbage collector runs wherever it likes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


def held_here(lock: threading.RLock) -> Callable[[], bool]:
    """What tells whether the thread that asks holds this lock.

    Example:
        >>> lock = threading.RLock()
        >>> is_held = held_here(lock)
        >>> with lock:
        ...     is_held()
        True
        >>> is_held()
        False
    """
    return lock._is_owned  # type: ignore[attr-defined] - not documented; `threading.Condition` asks it too
