"""What an engine of hosts does about keeping its agents for the next notebook."""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec.structs import replace

from ..errors import SpawnError
from ..system.registry import this_place
from ..wire.link import Address
from ..wire.zmq_door import Keys
from .allocations import NOBODY, Allocation, Shelf, this_process

TOUCHED = 10.0
"""Seconds between two signs on disk that the notebook lives."""


class Keeper:
    """Keeps the agents that `launch` starts on `hosts`: they wait `seconds` for the next notebook."""

    def __init__(self, launch: str, hosts: Sequence[str], seconds: float, shelf: Shelf | None = None) -> None:
        self.seconds = seconds
        self._launch = launch
        self._hosts = tuple(hosts)
        self._shelf = shelf or Shelf()
        self._kept: Allocation | None = None
        self._touched = 0.0

    def find(self) -> Allocation | None:
        """Agents that wait for a notebook.

        Raises `SpawnError` where another notebook is on them.
        """
        found = self._shelf.find(self._launch, self._hosts)
        if found is not None and found.is_held and found.holder != this_process():
            raise SpawnError(
                f"these hosts are in use by process {found.holder.pid} of this machine: take its mesh down there, or "
                "leave out --keep to start agents of your own beside its"
            )
        if found is not None:
            self.seconds = found.keep  # they were told so when they were started
        return found

    def note(self, port: int, keys: Keys, addresses: Sequence[Address]) -> None:
        """The agents are there, at these addresses. Raises `SpawnError` where that cannot be written down."""
        former = self._shelf.find(self._launch, self._hosts)
        self._kept = Allocation(
            launch=self._launch,
            hosts=self._hosts,
            port=port,
            public_key=keys.public,
            secret_key=keys.secret,
            addresses=tuple(addresses),
            keep=self.seconds,
            since=former.since if former is not None else time.time(),
            place=this_place(),
            holder=this_process(),
            meshes=former.meshes if former is not None else {},
        )
        try:
            self._shelf.put(self._kept)
        except OSError as error:
            self._kept = None
            raise SpawnError(f"these hosts cannot be kept: {error}") from error

    def note_mesh(self, name: str, line: str) -> None:
        """A mesh is on them, brought up by this line: it can be brought up again."""
        if self._kept is not None:
            self._kept = replace(self._kept, meshes={**self._kept.meshes, name: line})
            self._shelf.put(self._kept)

    def tick(self, now: float) -> None:
        """Time goes by; by `time.monotonic`."""
        if self._kept is not None and now - self._touched > TOUCHED:
            self._touched = now
            self._shelf.touch(self._launch, self._hosts)

    def leave(self) -> bool:
        """The notebook leaves them, and their time begins; whether there are any."""
        if self._kept is None:
            return False
        self._shelf.put(replace(self._kept, holder=NOBODY))
        self._kept = None
        return True

    def drop(self) -> None:
        """They are given back."""
        self._shelf.drop(self._launch, self._hosts)
        self._kept = None
