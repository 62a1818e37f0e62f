"""The clock by which Linux dates processes: what was started in one tick of it has no order."""

from __future__ import annotations

import os
import time


def tick() -> None:
    """Wait until it has gone on."""
    first = _now()
    while _now() < first + 2:
        pass


def _now() -> int:
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
