"""What a controller left behind that is gone: found by pid and start time, never by name, and ended.

The verdicts are pure (`judge`); around them is a thin rim that reads registers and sends signals.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path

import msgspec

from .hatch import SUFFIX
from .proc import Stat, stat_of
from .registry import Entry, Register, state_folder, this_place


class Fate(Enum):
    """What is to be done about a register."""

    KEEP = auto()
    """Its controller lives, or it is of another machine: no business of ours."""
    FORGET = auto()
    """Nothing of it is left."""
    REAP = auto()
    """Its controller is gone, and processes of it live."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of one register."""

    fate: Fate
    orphans: tuple[Entry, ...] = ()


def judge(register: Register, place: tuple[str, str, str], stats: Mapping[int, Stat]) -> Verdict:
    """The verdict on a register, seen from `place` (see `registry.this_place`), where `stats` has what lives.

    Example:
        >>> gone, orphan = Entry(7, 100, "controller"), Entry(8, 110, "rank 0")
        >>> register = Register("h", "boot 1", "pids", gone, [orphan])
        >>> judge(register, ("h", "boot 1", "pids"), {8: Stat("S", 8, 0, 110)}).fate
        <Fate.REAP: 3>
        >>> judge(register, ("h", "boot 1", "pids"), {8: Stat("S", 8, 0, 999)}).fate  # another process by that pid
        <Fate.FORGET: 2>
    """
    host, boot, space = place
    if register.host != host:
        return Verdict(Fate.KEEP)  # the folder is shared between machines, whose pids mean nothing here
    if register.boot != boot:
        return Verdict(Fate.FORGET)
    if register.space != space or _lives(register.controller, stats):
        return Verdict(Fate.KEEP)
    orphans = tuple(entry for entry in register.processes if _lives(entry, stats))
    return Verdict(Fate.REAP if orphans else Fate.FORGET, orphans)


def _lives(entry: Entry, stats: Mapping[int, Stat]) -> bool:
    stat = stats.get(entry.pid)
    return stat is not None and stat.start == entry.start and stat.state not in "ZX"


@dataclass(slots=True)
class Report:
    """What `reap` has found and done."""

    ended: list[tuple[Entry, Entry]] = field(default_factory=list[tuple[Entry, Entry]])
    """Each process that was ended, with the controller that had left it behind."""
    refused: list[tuple[Entry, str]] = field(default_factory=list[tuple[Entry, str]])
    """Processes that could not be ended, and why."""
    num_forgotten: int = 0
    """Registers of controllers that left nothing."""
    num_living: int = 0
    """Registers that are in use, or of other machines."""

    def __repr__(self) -> str:
        lines = [
            f"ended {entry.what} (pid {entry.pid}): its controller (pid {controller.pid}) is gone"
            for entry, controller in self.ended
        ]
        lines += [f"could not end {entry.what} (pid {entry.pid}): {why}" for entry, why in self.refused]
        if not lines:
            lines = ["nothing is left behind"]
        if self.num_forgotten:
            lines.append(f"forgot {self.num_forgotten} controllers that are gone and left nothing")
        return "\n".join(lines)


def reap(folder: Path | None = None, end: Callable[[Entry], object] | None = None) -> Report:
    """End what controllers of this user left behind on this machine that are gone themselves; say what was done."""
    report = Report()
    for path, register in _registers(folder or state_folder()):
        verdict = judge(register, this_place(), _stats(register))
        if verdict.fate is Fate.KEEP:
            report.num_living += 1
            continue
        reasons = {entry: _why_not(end or _end, entry) for entry in verdict.orphans}
        refused = [(entry, why) for entry, why in reasons.items() if why]
        report.refused += refused
        report.ended += [(entry, register.controller) for entry, why in reasons.items() if not why]
        report.num_forgotten += verdict.fate is Fate.FORGET
        if not refused:
            _forget(path)
    return report


def tidy(folder: Path | None = None) -> None:
    """Drop the registers of controllers that are gone and left nothing; touch no process."""
    with contextlib.suppress(OSError):
        for path, register in _registers(folder or state_folder()):
            if judge(register, this_place(), _stats(register)).fate is Fate.FORGET:
                _forget(path)


def _forget(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_suffix(SUFFIX).unlink(missing_ok=True)


def _stats(register: Register) -> dict[int, Stat]:
    everyone = [register.controller, *register.processes]
    return {entry.pid: stat for entry in everyone if (stat := stat_of(entry.pid))}


def _registers(folder: Path) -> Iterable[tuple[Path, Register]]:
    for path in sorted(folder.glob("*.json")):
        with contextlib.suppress(OSError, msgspec.DecodeError):  # it went meanwhile, or is not of our making
            if path.stat().st_uid == os.getuid():
                yield path, msgspec.json.decode(path.read_bytes(), type=Register)


def _why_not(end: Callable[[Entry], object], entry: Entry) -> str:
    try:
        end(entry)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _end(entry: Entry) -> None:
    """Kill this process, with its group if it leads one: once more looked at, and held by a descriptor meanwhile."""
    try:
        fd = os.pidfd_open(entry.pid)
    except ProcessLookupError:
        return
    try:
        stat = stat_of(entry.pid)
        if stat is None or stat.start != entry.start:
            return
        with contextlib.suppress(ProcessLookupError):
            if stat.group == entry.pid:
                os.killpg(entry.pid, signal.SIGKILL)
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    finally:
        os.close(fd)
