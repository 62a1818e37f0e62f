"""A script's own `init_process_group`: which ranks meet in it, and where in our store.

An init that would go to our server, or to the port of the environment, meets in our store, under a prefix of its own:
our ranks all reach it, and no port has to be free.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlparse

from .group_plan import GroupPlan


class Cell(NamedTuple):
    """A cell that runs on all ranks of the mesh: its number is the same on each."""

    run: int
    name: str


NO_CELL = Cell(0, "")
"""Any other code: a cell of a slice, an actor, a task between two cells."""


@dataclass(frozen=True)
class Meeting:
    """What an init says: where, and which of how many ranks this one is."""

    place: str
    size: int
    rank: int


def meeting_of(arguments: Mapping[str, Any], plan: GroupPlan) -> Meeting | None:
    """The meeting that the arguments of an `init_process_group` ask for; None where it brings its own store.

    Example:
        >>> plan = GroupPlan(1, 4, {"dp": 4}, "auto", "cpu", "127.0.0.1", 29500)
        >>> meeting_of({"init_method": "tcp://127.0.0.1:29500", "world_size": 2, "rank": 1}, plan).size
        2
        >>> meeting_of({"init_method": "file:///tmp/here"}, plan)
    """
    if arguments.get("store") is not None or arguments.get("backend") in ("mpi", "fake"):
        return None
    method: str = arguments.get("init_method") or "env://"
    address = os.environ.get("MASTER_ADDR", plan.master_addr)
    port = os.environ.get("MASTER_PORT", str(plan.master_port))
    is_ours = method.startswith("tcp://") and str(urlparse(method).port) in (port, str(plan.master_port))
    if method != "env://" and not is_ours:
        return None
    size, rank = arguments.get("world_size", -1), arguments.get("rank", -1)
    size = size if size >= 0 else int(os.environ.get("WORLD_SIZE", plan.world_size))
    rank = rank if rank >= 0 else int(os.environ.get("RANK", plan.rank))
    return Meeting(f"{address}:{port}/{size}", size, rank)


class Meetings:
    """The meetings that this rank was in, and so which is its next.

    In a cell of all ranks that is the next one of this cell, also where an earlier cell has come to it on some ranks
    only. A rank on which that failed may come late to the last one of such a cell. Other code counts its own: an
    init that failed on one rank (a typo, "twice") is tried again there alone.
    """

    def __init__(self) -> None:
        self._num_held: Counter[str] = Counter()
        self._joined: set[str] = set()

    def next(self, meeting: Meeting, cell: Cell, store: Any) -> str:
        """The prefix in `store` (one of torch's) under which its ranks meet. Only what succeeds is then `note`d."""
        latest = f"user/{meeting.place}/latest"
        if cell.run:
            prefix = self._numbered(f"user/{meeting.place}/cell {cell.run}")
            store.set(latest, prefix)
            return prefix
        if store.check([latest]) and (missed := store.get(latest).decode()) not in self._joined:
            return missed
        return self._numbered(f"user/{meeting.place}")

    def note(self, prefix: str) -> None:
        """The rank has come to this one."""
        self._joined.add(prefix)
        self._num_held[prefix.rpartition("/")[0]] += 1

    def clear(self) -> None:
        """The store is another one."""
        self._num_held.clear()
        self._joined.clear()

    def _numbered(self, series: str) -> str:
        return f"{series}/{self._num_held[series]}"
