"""Waiting awake: for a moment before it sleeps a thread looks again and again whether something has come.

A call and its answer put both ends to sleep once. To wake a process up takes some ten microseconds, in which the other
core idles, and what wakes finds its caches cold: half of a short call. So whoever has just sent something, or has just
answered, stays awake for about as long as the other end needs, if each of the processes that work together has a core
for itself. Where that was in vain (endpoints take longer, others use the cores) it is done more and more rarely, until
it helps again. Spinning locks and the progress threads of MPI do the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ..system.cores import cores

T = TypeVar("T")

SECONDS = 100e-6
"""How long. Longer is no faster, and shorter is in vain more often (`benchmarks/README.md`)."""

MOST_PASSED_OVER = 63
"""So many waits are slept through at most before one is spent awake again."""


def has_room(num_ranks: int) -> bool:
    """Is there a core for each of so many ranks, and one for their controller?

    Example:
        >>> has_room(1_000_000)
        False
    """
    return num_ranks < cores()


class Awake:
    """How one thread waits, with what it has learnt from its last waits.

    Example:
        >>> found = iter([[], [], ["a message"]])
        >>> Awake().poll(lambda timeout: next(found))
        ['a message']
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._penalty = 0
        self._to_pass_over = 0

    def poll(self, look: Callable[[float | None], list[T]], timeout: float | None = None) -> list[T]:
        """What `look(timeout)` finds, which sleeps; before that the thread looks on its own, if that seems worth it."""
        if timeout is not None and timeout <= SECONDS:
            return look(timeout)
        if self._to_pass_over:
            self._to_pass_over -= 1
            return look(timeout)
        until = self._clock() + SECONDS
        while self._clock() < until:
            if found := look(0):
                self._penalty = 0
                return found
        self._penalty = min(2 * self._penalty + 1, MOST_PASSED_OVER)
        self._to_pass_over = self._penalty
        return look(timeout)
