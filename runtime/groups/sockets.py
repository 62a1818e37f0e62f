"""The TCP sockets of this process: at which ports it listens, and how a wait on a connection is broken off.

A gloo collective whose peer never comes waits in C++, where neither signals nor `ProcessGroup.abort` reach it. It ends
at once, with an ordinary error, when the connection it waits on is shut down under it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import stat
import struct
from collections.abc import Collection, Iterator

Port = tuple[str, int]
"""The address of a machine (empty: any) and a number, which on another machine may be anybody's."""


def port_at(host: str, number: int) -> Port:
    """A port as all processes call it, whichever way they are connected to it.

    Example:
        >>> port_at("::ffff:10.0.0.1", 80), port_at("0.0.0.0", 80), port_at("a.name", 80)
        (('10.0.0.1', 80), ('', 80), ('', 80))
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])  # behind it is the name of an interface, here
    except ValueError:
        return "", number  # a name, which may stand for several
    address = getattr(address, "ipv4_mapped", None) or address
    return "" if address.is_unspecified else str(address), number


def listening_ports() -> set[Port]:
    """The TCP ports at which this process accepts connections."""
    return {port_at(*sock.getsockname()[:2]) for _, sock in _tcp_sockets() if _listens(sock)}


def shut_connections(ports: Collection[Port]) -> int:
    """Shut down the connections of this process that have one of these ports at either end; how many there were.

    Sockets that listen are left alone: torch ends the process when one of its own is shut down.

    Example:
        >>> server = socket.create_server(("127.0.0.1", 0))
        >>> client = socket.create_connection(server.getsockname())
        >>> shut_connections([server.getsockname()])
        1
        >>> client.recv(1)
        b''
        >>> client.close(), server.close()
        (None, None)
    """
    num_shut = 0
    for _, sock in _tcp_sockets():
        if not _listens(sock) and _ports(sock) & set(ports):
            with contextlib.suppress(OSError):  # the other end was faster
                sock.shutdown(socket.SHUT_RDWR)
                num_shut += 1
    return num_shut


def knock(ports: Collection[Port], count: int) -> None:
    """Come to each gloo group that listens here at one of these ports in place of its first `count` peers, and leave.

    A pair of a lazy group that waits for its peer to connect has no connection that could be shut. Gloo tells who
    comes by a number that is sent first, counted from 0 in each group (`gloo/transport/tcp/listener.cc`); a pair whose
    peer comes and goes fails with "Connection closed by peer", and what waited for it ends.
    """
    for address in [sock.getsockname() for _, sock in _tcp_sockets() if _listens(sock) and _ports(sock) & set(ports)]:
        for number in range(count):
            with contextlib.suppress(OSError), socket.create_connection(address[:2], timeout=1.0) as caller:
                caller.sendall(struct.pack("@n", number))


# With `socket.setdefaulttimeout` a new object makes its socket non-blocking, for all who have it open: links and stores
# too, which then are told that nothing has come. One that never waits is taken as it is. (macOS has no such type.)
_AS_IT_IS = socket.SOCK_STREAM | getattr(socket, "SOCK_NONBLOCK", 0)


def look_at(fd: int) -> socket.socket:
    """A socket that somebody else has, by a descriptor of its own: neither the owner's nor how he waits is touched."""
    return socket.socket(type=_AS_IT_IS, fileno=os.dup(fd))


def close_all(ports: Collection[Port]) -> None:
    """Close the sockets of this process at these ports: whoever has them will never touch them again."""
    for number, sock in _tcp_sockets():
        if port_at(*sock.getsockname()[:2]) in ports:
            os.close(number)


def _tcp_sockets() -> Iterator[tuple[int, socket.socket]]:
    """The TCP sockets of this process, by their descriptors; each through another, so that its own is not touched."""
    for name in os.listdir("/dev/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            copy = look_at(int(name))
        except OSError:
            continue  # closed meanwhile by another thread
        with copy:
            if copy.family in (socket.AF_INET, socket.AF_INET6) and _kind(copy) == socket.SOCK_STREAM:
                yield int(name), copy


def _kind(sock: socket.socket) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)


def _listens(sock: socket.socket) -> bool:
    return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _ports(sock: socket.socket) -> set[Port]:
    """Those at its ends, also as ports of any machine."""
    ends = [sock.getsockname()]
    with contextlib.suppress(OSError):  # not connected
        ends.append(sock.getpeername())
    return {port for host, number, *_ in ends for port in (port_at(host, number), ("", number))}
