"""The TCP sockets of this process: which ports it listens at, and how a wait on a connection is broken off.

A gloo collective whose peer never comes waits in C++, where neither signals nor `ProcessGroup.abort` reach it. It ends
at once, with an ordinary error, when the connection it waits on is shut down under it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
from collections.abc import Collection, Iterator


def listening_ports() -> set[int]:
    """The TCP ports at which this process accepts connections."""
    return {sock.getsockname()[1] for sock in _tcp_sockets() if _listens(sock)}


def shut_connections(ports: Collection[int]) -> int:
    """Shut down the connections of this process that have one of these ports at either end; how many there were.

    Sockets that listen are left alone: torch ends the process when one of its own is shut down.

    Example:
        >>> server = socket.create_server(("127.0.0.1", 0))
        >>> client = socket.create_connection(server.getsockname())
        >>> shut_connections([server.getsockname()[1]])
        1
        >>> client.recv(1)
        b''
        >>> client.close(), server.close()
        (None, None)
    """
    num_shut = 0
    for sock in _tcp_sockets():
        if not _listens(sock) and _ports(sock) & set(ports):
            with contextlib.suppress(OSError):  # the other end was faster
                sock.shutdown(socket.SHUT_RDWR)
                num_shut += 1
    return num_shut


def knock(ports: Collection[int], count: int) -> None:
    """Come to each gloo group that listens here at one of these ports in place of its first `count` peers, and leave.

    A pair of a lazy group that waits for its peer to connect has no connection that could be shut. Gloo tells who
    comes by a number that is sent first, counted from 0 in each group (`gloo/transport/tcp/listener.cc`); a pair whose
    peer comes and goes fails with "Connection closed by peer", and what waited for it ends.
    """
    for address in [sock.getsockname() for sock in _tcp_sockets() if _listens(sock) and _ports(sock) & set(ports)]:
        for number in range(count):
            with contextlib.suppress(OSError), socket.create_connection(address[:2], timeout=1.0) as caller:
                caller.sendall(struct.pack("@n", number))


def _tcp_sockets() -> Iterator[socket.socket]:
    """Each through a second descriptor of its own, so that the owner's is not touched."""
    for name in os.listdir("/dev/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            copy = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue  # closed meanwhile by another thread
        with copy:
            if copy.family in (socket.AF_INET, socket.AF_INET6) and copy.type == socket.SOCK_STREAM:
                yield copy


def _listens(sock: socket.socket) -> bool:
    return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _ports(sock: socket.socket) -> set[int]:
    try:
        return {sock.getsockname()[1], sock.getpeername()[1]}
    except OSError:  # not connected
        return {sock.getsockname()[1]}
