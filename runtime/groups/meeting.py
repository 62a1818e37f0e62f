"""Where process groups meet: the store that one rank serves, at a port that was there before torch was."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from datetime import timedelta
from importlib import import_module
from typing import Any

from .c10d import LONG, finishes
from .group_plan import GroupPlan
from .names import ask_no_names
from .sockets import look_at

CONNECT_SECONDS = 60.0

STAND_IN_SECONDS = 60.0
"""How long somebody answers in place of a store that is gone: torch waits so long at most between two tries."""

_ASKED, _PING = 10, 4
"""Bytes that who comes to a store of torch sends first, and those of them that are to come back (torch 2.13)."""


def open_store(dist: Any, plan: GroupPlan) -> Any:
    """Rank 0's server, or a connection to it; interruptible, although torch waits in C++ for an answer."""
    found: list[Any] = []
    failed: list[Exception] = []

    def look() -> None:
        # It has listened since before anybody was told of it: where it has died, torch would try for a minute.
        if plan.rank != plan.store_rank:
            _check_listens(plan)

    look()

    def connect() -> None:
        ask_no_names(plan.master_addr)
        try:
            found.append(
                dist.TCPStore(
                    plan.master_addr,
                    plan.master_port,
                    plan.world_size,
                    plan.rank == plan.store_rank,
                    timeout=timedelta(seconds=CONNECT_SECONDS),
                    wait_for_workers=False,
                    multi_tenant=True,  # a user's tcp:// to this port on rank 0 then finds this server
                    master_listen_fd=plan.listen_fd,
                )
            )
        except RuntimeError as error:
            failed.append(error)

    if not finishes(connect, CONNECT_SECONDS + 1, look) or not found:
        why = failed[0] if failed else None
        raise ConnectionError(f"rank {plan.store_rank} does not answer at {_where(plan)}") from why
    found[0].set_timeout(LONG)
    return found[0]


def _check_listens(plan: GroupPlan) -> None:
    try:
        socket.create_connection((plan.master_addr, plan.master_port), timeout=CONNECT_SECONDS).close()
    except ConnectionRefusedError as error:
        raise ConnectionError(f"rank {plan.store_rank} does not listen at {_where(plan)} any more") from error
    except OSError as error:  # its host is down, or its name is not known here
        raise ConnectionError(f"rank {plan.store_rank} does not answer at {_where(plan)}: {error}") from error


def _where(plan: GroupPlan) -> str:
    return f"{plan.master_addr}:{plan.master_port}"


class Door:
    """A socket at which a store is to be served; whoever comes first has torch imported for it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._is_shut = False
        threading.Thread(target=self._wait, name="mesh-door", daemon=True).start()

    def shut(self) -> None:
        """Nobody is to come any more: its thread ends, and closes the socket."""
        self._is_shut = True
        with look_at(self._fd) as door, contextlib.suppress(OSError):
            door.shutdown(socket.SHUT_RDWR)  # only Linux wakes who waits there

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.poll()
        if self._is_shut:
            os.close(self._fd)
        else:
            import_module("torch")


def stand_in(plan: GroupPlan) -> None:
    """Answer for a while in place of the store, if it is gone.

    torch opens a connection of its own to the store for each group of gloo. Where the store dies just then, it tries
    again, in C++, for as long as collectives may take. Answered, it goes on, and finds that connection closed.
    """
    if plan.rank == plan.store_rank or not plan.master_port:
        return
    try:
        server = socket.create_server((plan.master_addr, plan.master_port))
    except OSError:  # it lives, or was on another host
        return
    threading.Thread(target=_answer, args=(server,), name="meshbook-store", daemon=True).start()


def _answer(server: socket.socket) -> None:
    """To each that comes: a word, which tells its protocol, and a ping with a number, which is to come back."""
    deadline = time.monotonic() + STAND_IN_SECONDS
    with server, contextlib.suppress(OSError):
        while (left := deadline - time.monotonic()) > 0:
            server.settimeout(left)
            caller, _ = server.accept()
            with caller, contextlib.suppress(OSError):
                caller.settimeout(1.0)
                caller.sendall(caller.recv(_ASKED, socket.MSG_WAITALL)[-_PING:])
