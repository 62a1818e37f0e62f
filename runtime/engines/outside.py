"""Ranks seen from outside, for those that do not answer: what the system tells, a dump by a signal, py-spy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..ranks import dumps
from ..ranks.stacks import Spots, visible
from . import spy

DUMP_TIMEOUT = 0.25
"""Seconds for a stack by signal: it takes 0.1 to 50 ms, more on a machine that is busy."""
SPY_TIMEOUT = 3.0
"""Seconds for py-spy: 9 to 120 ms, with native frames of torch about a second."""

_STILL = {
    "T": "stopped (SIGSTOP): `kill -CONT {pid}` lets it go on",
    "t": "stopped by a debugger that traces pid {pid}",
    "Z": "dead, and its end is not told yet",
}
_DEEP = "in the kernel, where no signal reaches it (disk, network file system or driver); "


class Glimpse(NamedTuple):
    """What could be seen of a rank from outside."""

    how: str = ""
    """By what its stack was taken: `signal` or `py-spy`; empty when there is none."""
    spots: Spots = ()
    trouble: str = ""
    """Why there is no stack, or what is strange about the process."""
    thread: str = ""
    """The thread that it is the stack of, if not the main one."""


def look(pids: Mapping[int, int], native: bool = False) -> dict[int, Glimpse]:
    """Look at processes (pid by rank) without their help; none of them has to answer.

    First by signal, which costs a rank nothing; with `native`, and where that fails, by py-spy.
    """
    states = {rank: process.state if (process := dumps.Process.read(pid)) else "" for rank, pid in pids.items()}
    seen = {
        rank: Glimpse(trouble=_STILL[state].format(pid=pids[rank])) for rank, state in states.items() if state in _STILL
    }
    left = {rank: pid for rank, pid in pids.items() if rank not in seen}
    if not native:
        seen |= {rank: Glimpse("signal", spots) for rank, spots in dumps.take(left, DUMP_TIMEOUT).items()}
        # A main thread at rest is not what keeps a rank from answering: py-spy knows of the thread that does.
        left = {rank: pid for rank, pid in left.items() if rank not in seen or not visible(seen[rank].spots)}
    if not left:
        return seen
    found, failed = spy.take(left, native, SPY_TIMEOUT)
    tried = {
        rank: "" if native else _DEEP if states[rank] == "D" else "no answer to a signal either; " for rank in left
    }
    spied = {rank: Glimpse("py-spy", stack.spots, thread=stack.name) for rank, stack in found.items()}
    return {rank: Glimpse(trouble=f"{tried[rank]}{why}") for rank, why in failed.items()} | seen | spied
