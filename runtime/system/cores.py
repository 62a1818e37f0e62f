"""The processors of this machine that this process may use."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, cast


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


def take_share() -> None:
    """Let this thread compute with as many threads as its rank may (`ranks.seed.prepare_torch`).

    OpenMP keeps that number for each thread; torch hands it on to a new one when it is asked for it, and not before the
    first matrix product.
    """
    torch = sys.modules.get("torch")
    if hasattr(torch, "get_num_threads"):  # else it is not imported yet, or another thread is about to
        cast("Any", torch).get_num_threads()
