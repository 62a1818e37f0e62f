"""nccl in a notebook, which deals with ranks that die or wait itself: torch's watchdog is told to stay out of it."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

_SETTINGS = {
    # Else the watchdog ends the process of who waits for a rank that has died, and all its variables with it.
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    # Else it writes a dump, for which it sleeps a minute after any error, and whoever drops the group waits for it.
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "0",
    # Else a rank that a debugger or a signal has stopped for some minutes is ended when it goes on.
    "TORCH_NCCL_ENABLE_MONITORING": "0",
}
"""Seen with torch 2.11. What the user has set stays."""

_MADE_SECONDS = 1.0

_LOOK_SECONDS = 0.01


def settle(is_shared: bool) -> None:
    """Set what is not set in the environment. Does a rank share its GPU with another one (`is_shared`)?

    nccl refuses two ranks of a host on one GPU, and takes those that name different hosts for ranks of different hosts.
    """
    shared = {"NCCL_HOSTID": f"{socket.gethostname()}-{os.getpid()}"} if is_shared else {}
    for name, value in (_SETTINGS | shared).items():
        os.environ.setdefault(name, value)


class _Member(NamedTuple):
    """A group of this process: its name, its store, and its backend for CUDA tensors."""

    name: str
    store: Any
    backend: Any

    @property
    def has_communicator(self) -> bool:
        """nccl makes one at the first collective, in which all ranks of the group must meet. True of other backends."""
        return not hasattr(self.backend, "_is_initialized") or self.backend._is_initialized()

    @property
    def is_awaited(self) -> bool:
        """Does its first rank, and perhaps others, make the communicator already?"""
        own = sys.modules["torch.distributed"].PrefixStore("cuda/", self.store)
        return not self.has_communicator and own.check(["0"])  # the number of the communicator in its group


def come(c10d: Any, device: str) -> list[str]:
    """Join the communicators that others wait for, so that these can be broken off; the names of their groups.

    Who makes one waits in C++ for all ranks of the group, where neither signals nor `abort` reach it.
    """
    awaited = [member for member in _members(c10d) if member.is_awaited]
    return [member.name for member in awaited if _has_joined(member, device)]


def _has_joined(member: _Member, device: str) -> bool:
    try:
        member.backend.eager_connect_single_device(sys.modules["torch"].device(device))
    except RuntimeError:  # who makes the communicator has died: nobody waits there any more
        return False
    return True


def abort(c10d: Any, joined: Collection[str] = ()) -> None:
    """End what waits in nccl: aborts the communicators of all groups, which must be made anew after it.

    All at once, as a kernel of one may stand in a queue behind that of another. Those of the groups `joined` are about
    to be there.
    """
    members = list(_members(c10d))
    making = [member for member in members if member.name in joined]
    deadline = time.monotonic() + _MADE_SECONDS
    while not all(member.has_communicator for member in making) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    with ThreadPoolExecutor(len(members) or 1, "mesh-abort") as threads:
        list(threads.map(_abort, members))


def _abort(member: _Member) -> None:
    with contextlib.suppress(RuntimeError):  # a communicator that is broken in itself
        member.backend.abort()


def _members(c10d: Any) -> Iterator[_Member]:
    cuda = sys.modules["torch"].device("cuda")
    for group, (_, store) in list(c10d._world.pg_map.items()):
        with contextlib.suppress(KeyError, RuntimeError):  # one that goes just now, or is for CPU tensors only
            yield _Member(c10d._world.pg_names[group], store, group._get_backend(cuda))
