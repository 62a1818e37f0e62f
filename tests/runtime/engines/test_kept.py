"""Agents that outlive their notebook, and the one that comes next."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from meshbook.runtime.engines.allocations import NOBODY, Allocation, Shelf, this_process
from meshbook.runtime.engines.hosts import HostsEngine
from meshbook.runtime.engines.keeper import Keeper
from meshbook.runtime.engines.launch import CommandLauncher, Launch
from meshbook.runtime.errors import SpawnError
from meshbook.runtime.system.proc import stat_of
from meshbook.runtime.system.registry import Entry, this_place
from meshbook.runtime.wire.reactor import Reactor
from meshbook.runtime.wire.zmq_door import Keys
from meshbook.runtime.wire.zmq_hub import ZmqHub

Until = Callable[..., Any]

NAMES = ["left", "right"]

NOTEBOOK = """
import sys
from meshbook.runtime import session
session.ZYGOTE_MODULES[:] = ["meshbook.runtime.ranks.worker"]
name = session.session().use_hosts(["left", "right"], keep=60)
procs = session.spawn_procs({"hosts": 2, "gpus": 1}, name, backend="none", path=sys.path)
procs.roster.wait_ready(20)
print(*[host.hello.pid for host in session.session().engine(name).hosts], *procs.roster.crew.pids.values(), flush=True)
sys.stdin.read()
"""


GIVE_BACK = "procs.stop().get()\nsession.session().release(procs.roster.engine)"


class Notebook:
    """What a notebook does with kept hosts, as far as engines are concerned."""

    def __init__(self, reactor: Reactor, shelf: Shelf, keep: float) -> None:
        from tests.runtime.conftest import PRELOAD

        launcher = CommandLauncher(reactor, "", NAMES)
        self.engine = HostsEngine(reactor, launcher, 2, PRELOAD, keeper=Keeper("", NAMES, keep, shelf))
        self._reactor = reactor
        self._bench: Any = None

    def work(self) -> list[int]:
        """Run something on both hosts; the agents there."""
        from tests.runtime.conftest import Bench

        self._bench = self._bench or Bench(self._reactor, self.engine)
        assert self._bench.workers({"hosts": 2, "gpus": 1}).rank.call().get(20).values() == [0, 1]
        return [host.hello.pid for host in self.engine.hosts if host.hello is not None]

    def end(self) -> None:
        self._bench.close()
        self.engine.close()

    def give_back(self) -> None:
        self._bench.close()
        self.engine.give_back()


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "hosts")


@pytest.fixture
def begin(reactor: Reactor, shelf: Shelf) -> Generator[Callable[..., Notebook]]:
    notebooks: list[Notebook] = []

    def begin(keep: float = 60.0) -> Notebook:
        notebooks.append(Notebook(reactor, shelf, keep))
        return notebooks[-1]

    yield begin
    for notebook in notebooks:
        notebook.give_back()


def lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def reap(pids: list[int]) -> None:
    """A launcher that was let go is nobody's to wait for; here it is our child."""
    for pid in pids:
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            continue


@pytest.mark.real
@pytest.mark.slow
def test_the_next_notebook_finds_the_agents_of_the_last(begin: Callable[..., Notebook], shelf: Shelf):
    first = begin()
    agents = first.work()
    ((kept, _),) = shelf.all()
    assert (kept.is_held, kept.hosts, kept.keep) == (True, ("left", "right"), 60.0)
    first.end()
    assert all(map(lives, agents))
    assert not shelf.all()[0][0].is_held
    second = begin()
    assert second.work() == agents
    assert shelf.all()[0][0].since == kept.since
    second.give_back()
    reap(agents)
    assert shelf.all() == []


@pytest.mark.real
@pytest.mark.slow
def test_keys_are_for_their_user_alone(begin: Callable[..., Notebook], tmp_path: Path):
    notebook = begin()
    notebook.work()
    (file,) = (tmp_path / "hosts").iterdir()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.real
@pytest.mark.slow
def test_an_agent_that_has_died_meanwhile_is_started_again(begin: Callable[..., Notebook]):
    first = begin()
    left, right = first.work()
    first.end()
    os.kill(right, signal.SIGKILL)
    reap([right])
    second = begin()
    now = second.work()
    assert now[0] == left
    assert now[1] != right
    second.give_back()
    reap([left])


@pytest.mark.real
@pytest.mark.slow
def test_agents_end_when_nobody_comes_in_time(begin: Callable[..., Notebook], shelf: Shelf, until: Until):
    notebook = begin(keep=0.3)
    agents = notebook.work()
    notebook.end()
    until(lambda: not any(map(lives, agents)))
    reap(agents)
    until(lambda: shelf.all() == [])


@pytest.mark.real
@pytest.mark.slow
def test_a_notebook_that_was_killed_leaves_its_agents_and_no_rank(until: Until):
    notebook = subprocess.Popen([sys.executable, "-c", NOTEBOOK], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert notebook.stdin is not None
    assert notebook.stdout is not None
    pids = [int(word) for word in notebook.stdout.readline().split()]
    agents, ranks = pids[:2], pids[2:]
    try:
        notebook.kill()
        notebook.wait()
        until(lambda: not any(map(lives, ranks)))
        assert all(map(lives, agents))
        next_one = NOTEBOOK.replace("sys.stdin.read()", GIVE_BACK)
        second = subprocess.run([sys.executable, "-c", next_one], capture_output=True, text=True, timeout=50)
        assert [int(word) for word in second.stdout.split()][:2] == agents, second.stderr
        until(lambda: not any(map(lives, agents)))
    finally:
        notebook.stdin.close()
        notebook.stdout.close()
        for pid in filter(lives, agents):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.real
@pytest.mark.slow
def test_agents_of_a_start_that_failed_do_not_wait(
    reactor: Reactor, shelf: Shelf, until: Until, monkeypatch: pytest.MonkeyPatch
):
    killed: list[int] = []
    monkeypatch.setattr(Launch, "kill", lambda launch: killed.append(launch.pid))
    command = "sh -c 'test {host} = left || exit 3; exec {command}'"
    engine = HostsEngine(
        reactor, CommandLauncher(reactor, command, NAMES), 2, keeper=Keeper(command, NAMES, 60.0, shelf)
    )
    engine.warm()
    until(lambda: engine.hosts[0].hello is not None)
    with pytest.raises(SpawnError, match=r"host right: .* exited with code 3"):
        engine.seats({"hosts": 2})
    hello = engine.hosts[0].hello
    assert hello is not None
    engine.close()
    until(lambda: not lives(hello.pid))
    assert hello.pid not in killed, "on another host nobody could kill it"
    assert shelf.all() == []


def kept(**changes: Any) -> Allocation:
    allocation = Allocation(
        launch="",
        hosts=("left", "right"),
        port=1,
        public_key=b"",
        secret_key=b"",
        addresses=(),
        keep=10.0,
        since=0.0,
        place=this_place(),
        holder=NOBODY,
    )
    return replace(allocation, **changes)


def parent() -> Entry:
    stat = stat_of(os.getppid())
    assert stat is not None
    return Entry(os.getppid(), stat.start, "notebook")


def test_another_notebook_that_is_on_them_is_named(reactor: Reactor, shelf: Shelf):
    shelf.put(kept(holder=parent()))
    notebook = Notebook(reactor, shelf, 60.0)
    with pytest.raises(SpawnError, match=f"in use by process {os.getppid()} of this machine: take its mesh down"):
        notebook.engine.seats({"hosts": 2})
    assert shelf.all()[0][0].is_held


def test_a_port_that_is_taken_is_told(reactor: Reactor, shelf: Shelf):
    notebook = Notebook(reactor, shelf, 60.0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        hub = ZmqHub(reactor, "tcp")
        address = hub.open()[1].address
        keys = hub.keys
        hub.close()
        port = taken.getsockname()[1]
        shelf.put(kept(port=port, public_key=keys.public, secret_key=keys.secret, addresses=(address,) * 2))
        with pytest.raises(SpawnError, match=f"no room for one: .*Address already in use: tcp://127.0.0.1:{port}"):
            notebook.engine.seats({"hosts": 2})


def test_where_nothing_can_be_written_that_is_told(tmp_path: Path):
    (tmp_path / "hosts").write_text("a file, and no folder")
    keeper = Keeper("", NAMES, 60.0, Shelf(tmp_path / "hosts"))
    with pytest.raises(SpawnError, match=r"these hosts cannot be kept: .*File exists"):
        keeper.note(1, Keys(b"", b""), [])
    assert not keeper.leave()


def test_when_an_allocation_is_over():
    now = time.time()
    assert not kept().is_over(now - 9, now)
    assert kept().is_over(now - 11, now)
    assert not kept(holder=this_process()).is_over(now - 11, now), "it is in use"
    assert kept(holder=replace(this_process(), start=1)).is_over(now - 11, now), "another process of that number"
    assert kept(holder=this_process(), place=("elsewhere", "", "")).is_over(now - 11, now)


def test_those_of_another_machine_with_the_same_home_are_left_to_it(shelf: Shelf):
    shelf.put(kept(place=("elsewhere", "", "")))
    assert shelf.all() == []
    assert shelf.find("", NAMES) is None


def test_files_of_others_are_passed_over(shelf: Shelf, tmp_path: Path):
    shelf.put(kept())
    (tmp_path / "hosts" / "strange.json").write_text("{}")
    assert [allocation.hosts for allocation, _ in shelf.all()] == [("left", "right")]
    assert shelf.find("", ["left"]) is None
    shelf.drop("", ("left", "right"))
    assert shelf.all() == []
