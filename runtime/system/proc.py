"""What Linux tells of a process in `/proc/PID/stat`: its state, its time on a core, when it began."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field

_PAGE = os.sysconf("SC_PAGE_SIZE")

_EXITING = 0x4
"""A flag of Linux (PF_EXITING): set before the process lets go of what it has open."""


@dataclass(frozen=True, slots=True)
class Stat:
    """A process at one moment."""

    state: str
    """One letter: R runs, S sleeps, D sleeps and takes no signal, T is stopped, t is traced, Z has ended."""
    group: int
    """Its process group."""
    ticks: int
    """The time it has had on cores, in clock ticks."""
    start: int
    """When it began, in clock ticks since boot: with its pid it names the process for good."""
    memory: int = field(default=0, compare=False)
    """Its resident memory, in bytes."""
    is_ending: bool = field(default=False, compare=False)
    """Is it on its way out? It may go on to say Z for as long as nobody has collected its exit status."""


def parse_stat(text: str) -> Stat:
    """Read a line of `/proc/PID/stat` (proc_pid_stat(5)).

    Example:
        >>> parse_stat("7 (a) b) T 1 7 7 0 -1 4 0 0 0 0 30 12 0 0 20 0 3 0 4711 0").start
        4711
    """
    # The name may hold spaces and brackets, so counting starts behind it: this is the third field.
    fields = text.rpartition(")")[2].split()
    memory = int(fields[21]) * _PAGE if len(fields) > 21 else 0
    return Stat(
        fields[0],
        int(fields[2]),
        int(fields[11]) + int(fields[12]),
        int(fields[19]),
        memory,
        bool(int(fields[6]) & _EXITING),
    )


def stat_of(pid: int) -> Stat | None:
    """A process now; None if there is none, or this system does not tell."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return parse_stat(file.read())
    except (FileNotFoundError, ProcessLookupError):
        return None


def is_ending(pid: int) -> bool:
    """Does this process end, or has it ended? False where this system does not tell."""
    try:
        stat = stat_of(pid)
    except OSError:  # no descriptor is left to look with
        return False
    return sys.platform == "linux" if stat is None else stat.is_ending
