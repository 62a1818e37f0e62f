"""Links between ranks on two hosts, at the agents: each rank has a socket pair, as between neighbours, and what it says
there goes from agent to controller to agent, datagram by datagram."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import LinkClosed
from ..wire.lane import Lane
from ..wire.link import PairLink
from ..wire.outlet import Outlet
from ..wire.reactor import Reactor

Say = Callable[[int, bytes], object]


class Tunnels:
    """The ends on this host. Its methods run on the loop.

    `say` is called with a tunnel's number and a datagram for the far end; an empty one when nothing follows.
    """

    def __init__(self, reactor: Reactor, say: Say) -> None:
        self._reactor = reactor
        self._say = say
        self._ends: dict[int, _End] = {}

    def open(self, number: int) -> socket.socket:
        """A new one; what its rank gets."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        link = PairLink(ours, carries_fds=False)
        end = self._ends[number] = _End(link, Outlet(Lane(link), link, self._reactor))
        link.watch(self._reactor, lambda: self._on_end(number, end))
        return theirs

    def take(self, number: int, data: bytes) -> None:
        """The far end said this; nothing: it is gone."""
        end = self._ends.get(number)
        if end is not None and data:
            end.outlet.post([data])
        elif end is not None:
            self._close(number, end)

    def close(self) -> None:
        for number, end in list(self._ends.items()):
            self._close(number, end)

    def _on_end(self, number: int, end: _End) -> None:
        if end.outlet.backlog:
            end.outlet.drain()
        try:
            while (received := end.link.recv_nowait()) is not None:
                self._say(number, bytes(received[0]))
        except LinkClosed:
            self._close(number, end)
            self._say(number, b"")

    def _close(self, number: int, end: _End) -> None:
        with contextlib.suppress(KeyError):
            del self._ends[number]
            end.link.unwatch(self._reactor)
            end.outlet.close()


@dataclass(frozen=True, slots=True)
class _End:
    link: PairLink
    outlet: Outlet
