"""Code that travels to hosts, which are processes on this machine here."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from meshbook.runtime.engines.hosts import HostsEngine
from meshbook.runtime.errors import SpawnError
from meshbook.runtime.healing import heal_roster
from meshbook.runtime.mesh import roster_of

if TYPE_CHECKING:
    from tests.runtime.conftest import Bench

Until = Callable[..., Any]

pytestmark = [pytest.mark.real, pytest.mark.slow]


def test_ranks_find_the_copy_of_a_folder_on_each_host(own: Bench, tmp_path: Path, until: Until) -> None:
    engine = own.engine
    assert isinstance(engine, HostsEngine)
    (tmp_path / "travelled.py").write_text("WORD = 'one'\n")
    (tmp_path / "large.bin").write_bytes(os.urandom(3 << 20))  # in pieces
    engine.seats({"rank": 2})
    engine.sync(tmp_path)
    workers = own.workers({"hosts": 2, "gpus": 1}, folder=str(tmp_path), cwd=str(tmp_path))
    say = "import os, sys, travelled\ntravelled.WORD, os.getcwd(), os.path.getsize('large.bin'), sys.path[0]"
    seen = workers.do.call(say).get(20).values()
    assert [(word, size) for word, _, size, _ in seen] == [("one", 3 << 20)] * 2
    folders = [folder for _, folder, _, _ in seen]
    assert len({*folders, str(tmp_path)}) == 3 and all(first == folder for _, folder, _, first in seen)

    (tmp_path / "travelled.py").write_text("WORD = 'second'\n")
    assert engine.sync(tmp_path).changed == ("travelled.py",)
    again = "import importlib, travelled\nimportlib.reload(travelled).WORD"
    assert workers.do.call(again).get(20).values() == ["second"] * 2

    roster = roster_of(workers)
    agent = engine.hosts[1].hello
    assert agent is not None
    os.kill(agent.pid, signal.SIGKILL)
    until(lambda: roster.dead() == [1])
    assert heal_roster(roster).ranks == (1,)
    assert workers.do.call("import travelled\ntravelled.WORD").get(20).values() == ["second"] * 2
    until(lambda: not os.path.exists(folders[1]))  # removed by the agent that came after it

    agent = engine.hosts[0].hello
    assert agent is not None
    os.kill(agent.pid, signal.SIGTERM)
    until(lambda: roster.dead() == [0])
    until(lambda: not os.path.exists(folders[0]))
    own.close()
    engine.close()
    until(lambda: not any(map(os.path.exists, folders)))


def test_a_folder_that_cannot_be_read_is_told(hosts: Bench, tmp_path: Path) -> None:
    assert isinstance(hosts.engine, HostsEngine)
    with pytest.raises(SpawnError, match=r"--sync: .*nothing cannot be read: No such file or directory"):
        hosts.engine.sync(tmp_path / "nothing")


def test_hosts_that_nobody_has_asked_for_yet_come_for_it_and_lost_ones_are_told(
    own: Bench, tmp_path: Path, until: Until
) -> None:
    engine = own.engine
    assert isinstance(engine, HostsEngine)
    (tmp_path / "a.py").touch()
    assert engine.sync(tmp_path).num_hosts == 2
    agents = [psutil.Process(host.hello.pid) for host in engine.hosts if host.hello is not None]
    zygotes = [child for agent in agents for child in agent.children()]
    for agent in agents:
        agent.kill()
    until(lambda: all(host.trouble for host in engine.hosts))
    assert psutil.wait_procs(zygotes, timeout=20)[1] == []  # they may be at their imports still
    with pytest.raises(SpawnError, match="--sync: host left was lost: its agent"):
        engine.sync(tmp_path)


def test_a_host_that_comes_again_has_the_folder_or_no_ranks(own: Bench, tmp_path: Path, until: Until) -> None:
    engine = own.engine
    assert isinstance(engine, HostsEngine)
    (tmp_path / "project").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "project/travelled.py").write_text("WORD = 'one'\n")
    for folder in ("project", "other"):
        engine.sync(tmp_path / folder)
    (tmp_path / "other").rmdir()  # no rank is there for it
    workers = own.workers({"hosts": 2}, folder=str(tmp_path / "project"))
    roster, agent = roster_of(workers), engine.hosts[1].hello
    assert agent is not None
    os.kill(agent.pid, signal.SIGKILL)
    until(lambda: roster.dead() == [1])
    (tmp_path / "project").rename(tmp_path / "away")
    for _ in range(2):
        with pytest.raises(SpawnError, match="project cannot be read: No such file or directory"):
            heal_roster(roster)
        until(lambda: roster.dead() == [1])
    (tmp_path / "away").rename(tmp_path / "project")
    assert heal_roster(roster).ranks == (1,)
    assert workers.do.call("import travelled\ntravelled.WORD").get(20).values() == ["one"] * 2
