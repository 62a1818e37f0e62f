from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from meshbook.runtime.ranks.sockets import listening_ports, shut_connections


@contextlib.contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket, socket.socket]]:
    """A server, a client of it, and the server's end of that."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            yield server, client, accepted


def test_a_server_is_found_by_its_port():
    before = listening_ports()
    with connected() as (server, _, _):
        assert listening_ports() - before == {server.getsockname()[1]}
    assert listening_ports() == before


def test_both_ends_here_are_shut_and_the_server_goes_on():
    with connected() as (server, client, accepted):
        assert shut_connections({server.getsockname()[1]}) == 2
        assert client.recv(1) == accepted.recv(1) == b""
        with socket.create_connection(server.getsockname()) as another:
            server.accept()[0].close()
            assert another.recv(1) == b""


def test_other_connections_are_left_alone():
    with connected() as (server, client, accepted), connected() as (other, _, _):
        assert shut_connections([other.getsockname()[1]]) == 2
        assert shut_connections([]) == 0
        client.sendall(b"x")
        assert accepted.recv(1) == b"x"
        assert server.fileno() >= 0


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_pairs_without_ports_are_no_tcp(kind: int):
    one, two = socket.socketpair(socket.AF_UNIX, kind)
    with one, two:
        shut_connections(range(65536))
        one.send(b"x")
        assert two.recv(1) == b"x"
