"""Hosts that have a network of their own: each is a network namespace of this machine, on one bridge."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from meshbook.runtime.engines.hosts import HostsEngine
from meshbook.runtime.errors import SpawnError, SupervisionError
from meshbook.runtime.mesh import roster_of

if TYPE_CHECKING:
    from tests.runtime.conftest import Bench

pytestmark = [pytest.mark.real, pytest.mark.slow]

HOSTS_2X1 = {"hosts": 2, "gpus": 1}

LAUNCH = "ip netns exec {host}"

LATE = 1.5
"""Seconds by which a loaded machine may be late."""


@dataclass(frozen=True, slots=True)
class Net:
    """Two namespaces; each reaches the other, and this machine at `here`, by an interface that is called `wire`."""

    names: tuple[str, ...]
    here: str
    there: tuple[str, ...]

    def cut(self, name: str) -> None:
        """Take down the link of a host, as when its cable is pulled."""
        _ip("-n", name, "link", "set", "wire", "down")


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"`ip {' '.join(words)}`: {done.stderr.strip()}")


def _lay(net: Net, bridge: str) -> None:
    _ip("link", "add", bridge, "type", "bridge")
    _ip("addr", "add", f"{net.here}/24", "dev", bridge)
    _ip("link", "set", bridge, "up")
    for number, (name, addr) in enumerate(zip(net.names, net.there, strict=True)):
        _ip("netns", "add", name)
        # Another interface, which comes first: what leads to the notebook is to be found, not what stands first.
        _ip("-n", name, "link", "add", "aside", "type", "bridge")
        _ip("-n", name, "addr", "add", f"198.19.255.{number + 1}/32", "dev", "aside")
        _ip("link", "add", f"{bridge}-{number}", "type", "veth", "peer", "name", "wire", "netns", name)
        _ip("link", "set", f"{bridge}-{number}", "master", bridge, "up")
        _ip("-n", name, "addr", "add", f"{addr}/24", "dev", "wire")
        for interface in ("lo", "aside", "wire"):
            _ip("-n", name, "link", "set", interface, "up")


def _take_up(net: Net, bridge: str) -> None:
    for name in net.names:
        found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
        for pid in found:  # by a test that failed
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(OSError):  # it was not laid
            _ip("netns", "del", name)
    for link in (f"{bridge}-0", f"{bridge}-1", bridge):  # by name: a namespace that was deleted may live on for a while
        with contextlib.suppress(OSError):
            _ip("link", "del", link)


@pytest.fixture(scope="module")
def net() -> Generator[Net]:
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces want root, and `ip` (iproute2)")
    subnet, bridge = f"198.18.{os.getpid() % 250}", f"mb{os.getpid() % 10**8}"
    net = Net((f"{bridge}-left", f"{bridge}-right"), f"{subnet}.1", (f"{subnet}.2", f"{subnet}.3"))
    try:
        _lay(net, bridge)
    except OSError as error:
        _take_up(net, bridge)
        pytest.skip(f"no network namespaces here: {error}")
    try:
        yield net
    finally:
        _take_up(net, bridge)


def test_collectives_between_networks(net: Net, make: Callable[..., Bench]) -> None:
    bench = make(list(net.names), LAUNCH, addr=net.here)
    workers = bench.workers(HOSTS_2X1, backend="gloo")
    assert isinstance(bench.engine, HostsEngine)
    assert [host.hello.addr for host in bench.engine.hosts if host.hello] == list(net.there)
    names = ["MASTER_ADDR", "GLOO_SOCKET_IFNAME"]
    envs = workers.do.call(f"import os\n[os.environ[name] for name in {names}]").get(20).values()
    assert envs == [[net.there[0], "wire"]] * 2
    source = "import torch, torch.distributed as dist\nx = torch.ones(3) + here().rank\ndist.all_reduce(x)\nx.tolist()"
    assert workers.do.call(source).get(50).values() == [[3.0] * 3] * 2


def test_a_host_from_which_there_is_no_way_here_is_told_with_the_address(net: Net, make: Callable[..., Bench]) -> None:
    bench = make(list(net.names), LAUNCH, addr="127.0.0.1", timeout=3)
    with pytest.raises(SpawnError, match=rf"host {net.names[0]}: its agent has not come .*: it is to dial 127.0.0.1; "):
        bench.begin(HOSTS_2X1)


def test_a_host_whose_link_goes_down_is_lost_and_the_other_works_on(net: Net, make: Callable[..., Bench]) -> None:
    bench = make(list(net.names), LAUNCH, addr=net.here)
    workers = bench.workers(HOSTS_2X1)
    roster = roster_of(workers)
    waiting = workers.slice(hosts=1).do.call("import time\ntime.sleep(60)")
    workers.slice(hosts=0).rank.call().get(20)
    started = time.monotonic()
    net.cut(net.names[1])
    with pytest.raises(SupervisionError, match=rf"host {net.names[1]} was lost: it gave no sign of life for 4 s"):
        waiting.get(20)
    assert time.monotonic() - started < 5 + LATE
    assert roster.dead() == [1]
    assert workers.slice(hosts=0).rank.call().get(20).values() == [0]
