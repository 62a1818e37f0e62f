"""The C library of this process."""

from __future__ import annotations

import ctypes
import functools


@functools.cache
def libc() -> ctypes.CDLL:
    """Its functions as `ctypes` gives them: made once, in a zygote for all its ranks.

    Example:
        >>> libc().abs(-3)
        3
    """
    return ctypes.CDLL(None, use_errno=True)
