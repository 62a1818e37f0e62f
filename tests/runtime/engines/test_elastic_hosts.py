"""Meshes over several hosts that grow and shrink, and their spares: hosts are processes on this machine here."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import psutil
import pytest

from meshbook.runtime.controller.resize import resize_roster
from meshbook.runtime.controller.roster import Roster
from meshbook.runtime.controller.spares import keep_spares
from meshbook.runtime.engines.base import Exit
from meshbook.runtime.engines.hosted import HostedCrew
from meshbook.runtime.engines.hosts import HostsEngine
from meshbook.runtime.engines.remote_host import Pending, RemoteHost
from meshbook.runtime.engines.spec import Seat
from meshbook.runtime.errors import SpawnError
from meshbook.runtime.healing import heal_roster
from meshbook.runtime.mesh import ProcMesh, roster_of
from meshbook.runtime.session import specs_for
from meshbook.runtime.shape import Shape
from meshbook.runtime.wire.inproc import InprocLink
from meshbook.runtime.wire.lane import pack
from meshbook.runtime.wire.messages import AnyMessage, Done, Gone, Renumber, Renumbered, Room, Said
from meshbook.runtime.wire.reactor import Reactor
from tests.runtime.actors import Worker

if TYPE_CHECKING:
    from tests.runtime.conftest import Bench

Until = Callable[..., Any]

HOSTS_2X2 = {"hosts": 2, "gpus": 2}
HERE = "sh -c 'exec {command}' {host}"


def agent_of(bench: Bench, name: str) -> int:
    """The process of a host's agent."""
    assert isinstance(bench.engine, HostsEngine)
    (host,) = [host for host in bench.engine.hosts if host.name == name]
    assert host.hello is not None
    return host.hello.pid


def facts(roster: Roster) -> list[list[Any]]:
    """What each rank says of its number, its size, its place on its host and that of its host; all of them answer."""
    workers = ProcMesh(roster, Shape.row_major(roster.axes), is_owned=False).spawn("facts", Worker)
    names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"]
    found = workers.do.call(f"import os\n[int(os.environ[name]) for name in {names}]").get(20).values()
    workers.stop().get(10)  # type: ignore[attr-defined]
    return found


@pytest.mark.real
@pytest.mark.slow
def test_a_host_is_given_back_and_started_again_and_a_third_one_comes(make: Callable[..., Bench], until: Until):
    bench = make(["left", "right"])
    roster = bench.up(HOSTS_2X2).roster
    agent, pids = agent_of(bench, "right"), [state.pid for state in roster.states.values()]
    assert resize_roster(roster, {"hosts": 1}).given_back == ("right",)
    until(lambda: not psutil.pid_exists(agent))
    assert facts(roster) == [[0, 2, 0, 2, 0, 1], [1, 2, 1, 2, 0, 1]]
    assert resize_roster(roster, {"hosts": 3}).given_back == ()
    assert [roster.host_of(rank) for rank in range(6)] == ["left", "left", "right", "right", "host2", "host2"]
    assert facts(roster) == [[rank, 6, rank % 2, 2, rank // 2, 3] for rank in range(6)]
    assert [roster.states[rank].pid for rank in (0, 1)] == pids[:2]
    assert psutil.Process(roster.states[5].pid).parents()[1].pid == agent_of(bench, "host2")
    assert resize_roster(roster, {"hosts": 1}).given_back == ("right", "host2")


@pytest.mark.real
@pytest.mark.slow
def test_a_host_that_another_mesh_is_on_stays_and_numbers_change_across_hosts(hosts: Bench):
    other = hosts.workers(HOSTS_2X2)
    roster = hosts.up(HOSTS_2X2).roster
    agent = agent_of(hosts, "beta")
    resize_roster(roster, {"gpus": 3})
    assert [roster.host_of(rank) for rank in range(6)] == ["alpha"] * 3 + ["beta"] * 3
    assert facts(roster) == [[rank, 6, rank % 3, 3, rank // 3, 2] for rank in range(6)]
    assert resize_roster(roster, {"hosts": 1, "gpus": 1}).given_back == ()
    assert facts(roster) == [[0, 1, 0, 1, 0, 1]]
    assert psutil.pid_exists(agent)
    assert other.rank.call().get(10).values() == [0, 1, 2, 3]


@pytest.mark.real
@pytest.mark.slow
def test_a_host_that_cannot_come_changes_nothing(make: Callable[..., Bench]):
    bench = make(["a", "b"], HERE)
    workers = bench.workers({"hosts": 2})
    with pytest.raises(
        ValueError, match="hosts=3 wants 3 hosts, and there are 2: its launcher starts each by its name"
    ):
        resize_roster(roster_of(workers), {"hosts": 3})
    with pytest.raises(SpawnError, match="open files"):
        roster_of(workers).crew.check_room(["a", *["b"] * 10**6])
    assert workers.rank.call().get(10).values() == [0, 1]
    assert roster_of(workers).axes == {"hosts": 2}


@pytest.mark.real
@pytest.mark.slow
def test_a_dead_rank_is_replaced_by_a_spare_of_its_own_host(make: Callable[..., Bench], until: Until):
    bench = make(["left", "right"])
    roster = bench.up({"dp": 3}).roster
    keep_spares(roster, 1)
    assert roster.crew.num_spares[0] == 2, "one on each host"
    until(lambda: roster.crew.num_spares == (2, 2), 30)
    started = time.time()
    roster.kill([2])
    until(lambda: roster.dead() == [2])
    heal_roster(roster)
    process = psutil.Process(roster.states[2].pid)
    assert process.create_time() < started
    assert process.parents()[1].pid == agent_of(bench, "right")
    assert facts(roster)[2] == [2, 3, 0, 1, 1, 2]
    until(lambda: roster.crew.num_spares == (2, 2), 30)  # another one has come
    os.kill(agent_of(bench, "right"), signal.SIGKILL)
    until(lambda: roster.dead() == [2])
    until(lambda: roster.crew.num_spares[0] == 1)
    heal_roster(roster)
    assert roster.crew.num_spares[0] == 2


class Host:
    """An agent that answers at once, and tells nothing by itself."""

    def __init__(self, reactor: Reactor, name: str) -> None:
        self.name = name
        self.trouble = ""
        self.branches: dict[int, Any] = {}
        self.stats: dict[int, dict[int, Any]] = {}
        self.posted: list[AnyMessage] = []
        self._reactor = reactor

    def ask(self, make: Callable[[int], AnyMessage]) -> Pending:
        make(1)
        pending = Pending(self._reactor, threading.Event())
        pending.resolve(Done(1), [])
        return pending

    def post(self, message: AnyMessage, payload: object = None) -> None:
        self.posted.append(message)


class Ears:
    """Notes who has printed and who has ended."""

    def __init__(self) -> None:
        self.said: list[int] = []
        self.gone: list[int] = []

    def on_message(self, rank: int, message: AnyMessage, frames: object) -> None: ...

    def on_output(self, rank: int, events: Sequence[object]) -> None:
        self.said.append(rank)

    def on_exit(self, rank: int, exit: Exit) -> None:
        self.gone.append(rank)


def test_what_is_under_way_while_ranks_get_other_numbers_is_told_of_the_right_ones(reactor: Reactor):
    a, b = Host(reactor, "a"), Host(reactor, "b")
    names, ears = {"a": a, "b": b}, Ears()
    specs = specs_for(HOSTS_2X2, seats=[Seat(rank % 2, 2, "aabb"[rank]) for rank in range(4)])
    crew = HostedCrew(reactor, 7, cast("Any", names.__getitem__), lambda host: False, specs, ears, "auto")
    far = cast("RemoteHost", b)
    b.stats[7] = {2: "of rank 2"}
    crew.renumber({0: 0, 1: 1, 2: 3, 3: 4})
    assert (a.posted, b.posted) == ([], [Renumber(7, {2: 3, 3: 4})]), "who keeps its number need not be told"
    assert crew.stats([3]) == {}, "by which number they were meant nobody can tell now"
    crew.on_news(far, Said(7, 3, ()), [])
    crew.renumber({0: 0, 3: 1, 4: 2})
    crew.on_news(far, Said(7, 3, ()), [])
    crew.on_news(far, Renumbered(7), [])
    crew.on_news(far, Said(7, 4, ()), [])
    crew.on_news(far, Renumbered(7), [])
    crew.on_news(far, Said(7, 2, ()), [])
    crew.on_news(far, Gone(7, 1, 0, None, ""), [])
    assert (ears.said, ears.gone) == ([4, 2, 2, 2], [1])
    assert b.stats == {}


def test_who_waits_for_a_host_that_is_given_back_is_told_so(reactor: Reactor):
    link, theirs = InprocLink.make()
    nothing: Any = lambda *_: ""  # noqa: E731
    host = RemoteHost(reactor, 0, "a", link, nothing, nothing, nothing)
    asked = host.ask(lambda seq: Room(seq, 1))
    host.dismiss()
    for pending in (asked, host.ask(lambda seq: Room(seq, 1))):
        with pytest.raises(SpawnError, match="host a was given back"):
            pending.wait(5)
    theirs.close()


def test_news_that_a_mesh_chokes_on_keeps_no_other_back(
    reactor: Reactor, monkeypatch: pytest.MonkeyPatch, until: Until
):
    class Touchy:
        def __init__(self) -> None:
            self.heard: list[int] = []

        def on_news(self, host: RemoteHost, news: Any, frames: Any) -> None:
            self.heard.append(news.rank)
            raise ValueError("no news is good news")

        def on_host_lost(self, host: RemoteHost) -> None: ...

    reported: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    link, theirs = InprocLink.make()
    nothing: Any = lambda *_: ""  # noqa: E731
    host = RemoteHost(reactor, 0, "a", link, nothing, nothing, nothing)
    branch = host.branches[7] = Touchy()
    theirs.send([b"".join(pack(Said(7, rank, ()))) for rank in range(3)])  # as one datagram
    until(lambda: branch.heard == [0, 1, 2], 5)
    host.dismiss()
    assert [report.exc_type for report in reported] == [ValueError] * 3
    theirs.close()
