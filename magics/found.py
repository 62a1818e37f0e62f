"""The processes of this user that control meshes on this machine, found by their hatches."""

from __future__ import annotations

import socket
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..kernel.debug.letters import List, Listing, Wire
from ..kernel.waiting.report import states_text
from ..runtime.ranges import ranks_text
from ..runtime.ranks.place import axes_text
from ..runtime.system.hatch import SUFFIX, is_welcome, short_name
from ..runtime.system.registry import state_folder

_PATIENCE = 3.0
"""Seconds in which a process says what it has: the first time it imports what answers."""


class NotFound(Exception):
    """What was named is not there; says what is."""


@dataclass(frozen=True, slots=True)
class Found:
    """A process with a hatch. `listing` is None where it did not answer in time."""

    pid: int
    path: Path
    listing: Listing | None

    @property
    def names(self) -> list[str]:
        """Of its meshes."""
        return [mesh.name for mesh in self.listing.meshes] if self.listing is not None else []

    def __str__(self) -> str:
        if self.listing is None:
            return f"pid {self.pid}   does not answer"
        at = f"   at {self.listing.place}" if self.listing.place else ""
        lines = [f"pid {self.pid}   {self.listing.command}   in {self.listing.folder}{at}"]
        for mesh in self.listing.meshes:
            lines.append(f"  mesh {mesh.name}   {axes_text(mesh.axes)}   {states_text(mesh.states.values())}")
            places = sorted(set(mesh.stops.values()))
            for place in places:
                ranks = sorted(rank for rank, at in mesh.stops.items() if at == place)
                what = f"stopped at {place}" if place else f"ask{'s' * (len(ranks) == 1)} for input"
                lines.append(f"    {ranks_text(ranks)} {what}")
        return "\n".join(lines)


def find(folder: Path | None = None) -> list[Found]:
    """Those that live, whether they answer or not; without those that have no mesh."""
    found = [each for path in sorted((folder or state_folder()).glob(f"*{SUFFIX}")) if (each := _look_at(path))]
    return [each for each in found if each.listing is None or each.listing.meshes]


def _look_at(path: Path) -> Found | None:
    pid = path.name.partition("-")[0]
    try:
        with knock(path, _PATIENCE) as stream:
            wire = Wire(stream)
            wire.send(List())
            listing = wire.recv_from_process()
    except (OSError, ValueError):
        return None  # nobody is behind it any more, or it is none of ours
    return Found(int(pid), path, listing if isinstance(listing, Listing) else None) if pid.isdigit() else None


@contextmanager
def knock(path: Path, timeout: float | None) -> Generator[socket.socket]:
    """A connection to a hatch. Raises `OSError`, also where it is one of another user."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        stream.settimeout(timeout)
        with short_name(path) as name:
            stream.connect(name)
        if not is_welcome(stream):
            raise PermissionError(f"{path} belongs to another user")
        yield stream


def choose(found: Sequence[Found], words: Sequence[str]) -> tuple[Found, str, str]:
    """The process, the name of the mesh (empty: its only one) and the selector that `[PID|MESH|PID/MESH] [SEL]` mean.

    Raises `NotFound`.
    """
    target, *rest = words or [""]
    pid, _, mesh = target.partition("/")
    by_pid = [each for each in found if pid.isdigit() and each.pid == int(pid)]
    by_name = [each for each in found if target and target in each.names]
    if by_pid:
        return by_pid[0], mesh, " ".join(rest)
    if by_name:
        return _only(by_name, f"mesh {target!r} is there more than once"), target, " ".join(rest)
    if target and not _is_selector(target, found):
        raise NotFound(f"there is no process and no mesh {target!r}; {_those(found)}")
    return _only(found, "name the process"), "", " ".join(words)


def _is_selector(word: str, found: Sequence[Found]) -> bool:
    ranks = max((len(mesh.states) for each in found if each.listing for mesh in each.listing.meshes), default=0)
    return word == "all" or any(mark in word for mark in "=:@!,") or (word.isdigit() and int(word) < ranks)


def _only(found: Sequence[Found], trouble: str) -> Found:
    stopped = [each for each in found if each.listing and any(mesh.stops for mesh in each.listing.meshes)]
    for some in (found, stopped):
        if len(some) == 1:
            return some[0]
    raise NotFound(f"{trouble}: {_those(found)}" if found else _those(found))


def _those(found: Sequence[Found]) -> str:
    told = [f"{each.pid} ({each.listing.command if each.listing else 'does not answer'})" for each in found]
    return f"there is {', '.join(told)}" if told else "no script or notebook of yours has a mesh here"
