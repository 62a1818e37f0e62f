"""Who is about to come to a store that is gone is answered, and let go."""

from __future__ import annotations

import socket

import pytest

from meshbook.runtime.groups.group_plan import GroupPlan
from meshbook.runtime.groups.meeting import stand_in


def plan_at(port: int, rank: int = 1) -> GroupPlan:
    return GroupPlan(
        rank=rank,
        world_size=2,
        axes={"r": 2},
        backend="gloo",
        device="cpu",
        master_addr="127.0.0.1",
        master_port=port,
    )


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_a_ping_comes_back_and_then_the_end(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []
    create = socket.create_server
    monkeypatch.setattr(socket, "create_server", lambda address: made.append(create(address)) or made[-1])
    stand_in(plan_at(port))
    for number in (b"abcd", b"efgh"):
        with socket.create_connection(("127.0.0.1", port), timeout=5) as caller:
            caller.sendall(b"\0magi\r" + number)
            assert caller.recv(4, socket.MSG_WAITALL) == number
            assert caller.recv(1) == b""
    made[0].shutdown(socket.SHUT_RDWR)  # its time is over


def test_one_that_lives_is_left_alone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        stand_in(plan_at(server.getsockname()[1]))
        with socket.create_connection(server.getsockname(), timeout=5):
            server.settimeout(5)
            server.accept()[0].close()


def test_who_serves_it_does_not(port: int) -> None:
    stand_in(plan_at(port, rank=0))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
