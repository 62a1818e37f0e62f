from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

import pytest

from meshbook.runtime.groups.sockets import listening_ports, look_at, shut_connections


@contextlib.contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket, socket.socket]]:
    """A server, a client of it, and the server's end of that."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            yield server, client, accepted


@pytest.fixture
def default_timeout() -> Iterator[None]:
    """What a user sets before downloads."""
    usual = socket.getdefaulttimeout()
    socket.setdefaulttimeout(60)
    yield
    socket.setdefaulttimeout(usual)


def test_a_server_is_found_by_its_port():
    before = listening_ports()
    with connected() as (server, _, _):
        assert listening_ports() - before == {server.getsockname()}
    assert listening_ports() == before


def test_both_ends_here_are_shut_and_the_server_goes_on():
    with connected() as (server, client, accepted):
        assert shut_connections({server.getsockname()}) == 2
        assert client.recv(1) == accepted.recv(1) == b""
        with socket.create_connection(server.getsockname()) as another:
            server.accept()[0].close()
            assert another.recv(1) == b""


def test_other_connections_are_left_alone():
    with connected() as (server, client, accepted), connected() as (other, _, _):
        assert shut_connections([other.getsockname()]) == 2
        assert shut_connections([]) == 0
        client.sendall(b"x")
        assert accepted.recv(1) == b"x"
        assert server.fileno() >= 0


def test_the_same_port_of_another_machine_is_another():
    with connected() as (_, client, accepted):
        # A client's own port is given to it by its machine, as a group's port was by another one.
        assert shut_connections([("192.0.2.7", client.getsockname()[1])]) == 0
        client.sendall(b"x")
        assert accepted.recv(1) == b"x"
        assert shut_connections([("", client.getsockname()[1])]) == 2


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no sockets for both kinds of addresses")
def test_a_machine_is_the_same_by_both_kinds_of_addresses():
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        number = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", number)) as client, server.accept()[0] as accepted:
            assert accepted.getsockname()[0] == "::ffff:127.0.0.1"
            assert shut_connections([("127.0.0.1", number)]) == 2
            assert client.recv(1) == b""


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_pairs_without_ports_are_no_tcp(kind: int):
    one, two = socket.socketpair(socket.AF_UNIX, kind)
    with one, two:
        shut_connections([("", number) for number in range(65536)])
        one.send(b"x")
        assert two.recv(1) == b"x"


def test_whoever_waits_at_a_socket_waits_on_when_it_is_looked_at(request: pytest.FixtureRequest):
    one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with connected() as ends, one, two:
        request.getfixturevalue("default_timeout")
        assert ends[0].getsockname() in listening_ports()
        assert shut_connections([("192.0.2.7", ends[0].getsockname()[1])]) == 0
        with look_at(ends[0].fileno()) as second:
            assert second.getsockname() == ends[0].getsockname()
        assert all(os.get_blocking(each.fileno()) for each in (*ends, one, two))
