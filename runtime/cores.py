"""The processors of this machine that this process may use."""

from __future__ import annotations

import functools
import os


@functools.cache
def cores() -> int:
    """How many there are.

    Example:
        >>> 1 <= cores() <= os.cpu_count()
        True
    """
    if hasattr(os, "sched_getaffinity"):  # Linux: fewer where a batch system or `taskset` says so
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
