"""Which ranks do not move: stopped, held by a debugger, or deep in the kernel. Pure: states in, verdicts out.

A signal (SIGSTOP, Ctrl-Z) and a tracer are seen at once. A rank that sleeps without taking signals most often waits for
a disk for milliseconds: only one that did so each time it was looked at, and had no time on a core, has got stuck.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ..system.proc import Stat

Kind = Literal["stopped", "traced", "asleep"]

_KINDS: dict[str, Kind] = {"T": "stopped", "t": "traced", "D": "asleep"}

PACE = 0.7
"""Seconds between two looks while a cell runs."""

LONG_SLEEP = 2.0
"""Seconds after which a sleep that takes no signals is no pause any more."""

SURE = 0.5
"""Seconds after which a stop is worth telling: a profiler that looks at a stack stops a process for milliseconds."""


@dataclass(frozen=True, slots=True)
class Halt:
    """A rank does not move."""

    kind: Kind
    since: float
    """When it was first seen so."""

    def __str__(self) -> str:
        return _WORDS[self.kind]

    def advice(self, pids: str, selector: str) -> str:
        """What gets ranks that are so moving, in one line; without a selector none of it is a magic."""
        end = f"`%mesh interrupt {selector} --kill` ends it" if selector else f"kill -KILL {pids} ends it"
        if self.kind == "stopped":
            return f"kill -CONT {pids} goes on, {end}"
        if self.kind == "traced":
            return f"it goes on when the debugger lets go of it, {end}"
        return "it waits in the kernel, for a disk or a network file system or a driver, and takes no signal till then"


_WORDS: dict[Kind, str] = {
    "stopped": "stopped (SIGSTOP)",
    "traced": "held by a debugger",
    "asleep": "in uninterruptible sleep",
}


class Vitals:
    """Remembers of each rank since when it is as it is.

    Example:
        >>> vitals = Vitals()
        >>> vitals.step(1.0, {0: Stat("S", 7, 30, 1), 1: Stat("T", 8, 30, 1)})
        {1: Halt(kind='stopped', since=1.0)}
        >>> vitals.step(9.0, {0: Stat("S", 7, 30, 1), 1: Stat("R", 8, 31, 1)})
        {}
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Halt, int]] = {}

    def step(self, now: float, stats: Mapping[int, Stat]) -> dict[int, Halt]:
        """The ranks among these that do not move at `now`; of ranks that are not among them nothing is kept."""
        former, self._seen = self._seen, {}
        for rank, stat in stats.items():
            if (kind := _KINDS.get(stat.state)) is not None:
                halt, ticks = former.get(rank, (None, 0))
                if halt is None or halt.kind != kind or (kind == "asleep" and ticks != stat.ticks):
                    halt = Halt(kind, now)
                self._seen[rank] = halt, stat.ticks
        return {
            rank: halt
            for rank, (halt, _) in self._seen.items()
            if halt.kind != "asleep" or now - halt.since >= LONG_SLEEP
        }
