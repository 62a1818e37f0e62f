"""A loop one of whose lines has a breakpoint with a condition that never holds, over the same loop without one.

In this process, of this Python: from 3.12 on other lines cost nothing; on 3.11 a trace function sees all of them.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Iterator
from typing import Any

from measure import Row, check, seconds_text

from meshbook.kernel.debug.breakpoints import Breakpoint
from meshbook.kernel.debug.watcher import Watcher

LOOP = """\
def work(n):
    x, y = 0.0, 1
    for i in range(n):
        y = (y * 3 + i) % 1009
        x += y * 0.5
    return x
"""
MOST = 6.0 if sys.version_info >= (3, 12) else None


def measure(is_quick: bool) -> Iterator[Row]:
    repeats, num = (10, 2_000) if is_quick else (200, 20_000)
    names: dict[str, Any] = {}
    exec(compile(LOOP, "<ipython-input-1-00000001>", "exec"), names)
    bare, hot, beside = _best(names["work"], num, repeats)
    python = f"{bare / num * 1e9:.0f} ns a turn, Python {platform.python_version()}"
    yield Row("a condition on a line of a loop", seconds_text(hot), python, hot / bare, "x", MOST)
    yield Row("  on a line before it", seconds_text(beside), python, beside / bare, "x", None)


def _best(work: Any, num: int, repeats: int) -> tuple[float, float, float]:
    """Without a breakpoint, with one in the loop, with one before it: in turns, as what others do only adds."""
    stops: list[str] = []
    watcher = Watcher(lambda _, why: stops.append(why))
    in_it = Breakpoint(1, cell="cell 1", line=5, condition="i == -1")
    before_it = Breakpoint(2, cell="cell 1", line=2, condition="n == -1")
    best = [float("inf")] * 3
    for _ in range(repeats):
        for which, armed in enumerate(((), (in_it,), (before_it,))):
            watcher.arm(armed)
            watcher.take_up()
            started = time.thread_time()
            work(num)
            best[which] = min(best[which], time.thread_time() - started)
            sys.settrace(None)
    watcher.arm(())
    check(not stops, f"it stopped: {stops[:1]}")
    bare, hot, beside = best
    return bare, hot, beside
