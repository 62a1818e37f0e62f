"""Hosts that are kept when their notebook ends: on disk, what the next one needs to take them over.

One small file for each, in a folder that only its user can read: the port at which the agents look for a notebook, and
the keys by which both know each other. Who can read it can take the agents' notebook's place, and theirs.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..system.proc import stat_of
from ..system.registry import Entry, put_privately, state_folder, this_place
from ..wire.link import Address

NOBODY = Entry(0, 0, "nobody")
"""Holds what nobody holds."""


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """Agents on hosts, as whoever may take them over knows them."""

    launch: str
    hosts: tuple[str, ...]
    port: int
    public_key: bytes
    secret_key: bytes
    addresses: tuple[Address, ...]
    keep: float
    """Seconds that the agents wait for the next notebook."""
    since: float
    """When they were started, in seconds since the epoch."""
    place: tuple[str, str, str]
    """The host, boot and pid namespace of `holder`."""
    holder: Entry
    """The process that holds them, or did so last."""
    meshes: dict[str, str] = {}
    """The lines that brought up meshes on them, by name of the mesh."""

    @property
    def is_held(self) -> bool:
        """Is a notebook on them?"""
        if self.holder == NOBODY or self.place != this_place():
            return False
        stat = stat_of(self.holder.pid)
        return stat is not None and stat.start == self.holder.start

    def is_over(self, seen: float, now: float) -> bool:
        """Have the agents ended, when their notebook was last `seen` to live? Both in seconds since the epoch."""
        return not self.is_held and now > seen + self.keep


class Shelf:
    """The allocations of this user on this machine."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or state_folder() / "hosts"

    def find(self, launch: str, hosts: Sequence[str]) -> Allocation | None:
        """The allocation of these hosts, if there is one whose agents may live."""
        return next((each for each, _ in self.all() if (each.launch, each.hosts) == (launch, tuple(hosts))), None)

    def all(self) -> list[tuple[Allocation, float]]:
        """Allocations whose agents may live, and when a notebook was last seen on them; those that are over go."""
        found: list[tuple[Allocation, float]] = []
        for path in sorted(self._folder.glob("*.json")):
            with contextlib.suppress(OSError, msgspec.MsgspecError):  # gone meanwhile, or of another version
                allocation = msgspec.json.decode(path.read_bytes(), type=Allocation)
                if allocation.place[0] != os.uname().nodename:
                    continue  # of another machine with the same home: its agents look for a notebook there
                seen = path.stat().st_mtime
                if allocation.is_over(seen, time.time()):
                    path.unlink(missing_ok=True)
                else:
                    found.append((allocation, time.time() if allocation.is_held else seen))
        return found

    def put(self, allocation: Allocation) -> None:
        """Keep it, in place of a former one of these hosts."""
        put_privately(self._path(allocation.launch, allocation.hosts), msgspec.json.encode(allocation))

    def touch(self, launch: str, hosts: Sequence[str]) -> None:
        """Its notebook lives."""
        with contextlib.suppress(OSError):  # it was taken away: then it is kept no more
            os.utime(self._path(launch, hosts))

    def drop(self, launch: str, hosts: Sequence[str]) -> None:
        """Its agents have ended."""
        self._path(launch, hosts).unlink(missing_ok=True)

    def _path(self, launch: str, hosts: Sequence[str]) -> Path:
        name = hashlib.sha256("\0".join([os.uname().nodename, launch, *hosts]).encode()).hexdigest()[:16]
        return self._folder / f"{name}.json"


def this_process() -> Entry:
    """The process that runs this, as a holder."""
    stat = stat_of(os.getpid())
    return Entry(os.getpid(), stat.start if stat is not None else 0, "notebook")
