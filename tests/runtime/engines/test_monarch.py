"""Hosts that Monarch has placed agents on: what Monarch sees, and what its end means."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from meshbook.runtime.engines.hosts import HostsEngine
from meshbook.runtime.engines.monarch import MonarchEngine
from meshbook.runtime.errors import SpawnError
from meshbook.runtime.healing import heal_roster
from meshbook.runtime.mesh import roster_of
from meshbook.runtime.wire.reactor import Reactor
from tests.runtime.conftest import HAS_MONARCH

if TYPE_CHECKING:
    from tests.runtime.conftest import Bench

Until = Callable[..., Any]

HOSTS_2X2 = {"hosts": 2, "gpus": 2}


@pytest.mark.skipif(HAS_MONARCH, reason="torchmonarch is here")
def test_without_the_package_it_says_how_to_get_it(reactor: Reactor):
    with pytest.raises(SpawnError, match=r"Monarch is not installed: pip install 'meshbook\[monarch\]', on Linux"):
        MonarchEngine(reactor, 2)


@pytest.mark.real
@pytest.mark.skipif(not HAS_MONARCH, reason="torchmonarch is missing")
def test_an_agent_that_dies_is_placed_again(monarch: Bench, until: Until, leaks: Any):
    assert isinstance(monarch.engine, HostsEngine)
    workers = monarch.workers(HOSTS_2X2)
    roster = roster_of(workers)
    host = monarch.engine.hosts[1]
    assert host.hello is not None
    os.kill(host.hello.pid, signal.SIGKILL)
    until(lambda: roster.dead() == [2, 3])
    assert f"ended: host {host.name} was lost: its agent" in roster.why_dead(2)
    assert heal_roster(roster).ranks == (2, 3)
    leaks.allow_what_stands()  # the new agent
    assert workers.rank.call().get(10).values() == [0, 1, 2, 3]


@pytest.mark.real
@pytest.mark.skipif(not HAS_MONARCH, reason="torchmonarch is missing")
def test_the_end_of_a_process_of_monarch_ends_neither_ranks_nor_the_notebook(monarch: Bench, until: Until):
    assert isinstance(monarch.engine, HostsEngine)
    workers = monarch.workers(HOSTS_2X2)
    agents = [psutil.Process(host.hello.pid) for host in monarch.engine.hosts if host.hello is not None]
    placer = agents[1].parent()
    assert placer is not None and placer.pid != os.getpid()
    placer.kill()
    until(lambda: agents[1].ppid() != placer.pid)
    assert workers.rank.call().get(10).values() == [0, 1, 2, 3]
