"""Meshes over several hosts, which are processes on this machine here: what is not as on one."""

from __future__ import annotations

import itertools
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from meshbook.runtime.engines.hosts import HostsEngine
from meshbook.runtime.engines.launch import CommandLauncher
from meshbook.runtime.engines.summons import VARIABLE, Summons
from meshbook.runtime.errors import SpawnError, SupervisionError
from meshbook.runtime.healing import heal_roster
from meshbook.runtime.mesh import roster_of
from meshbook.runtime.wire.link import Address
from tests.runtime.actors import Messenger

if TYPE_CHECKING:
    from meshbook.runtime.wire.reactor import Reactor
    from tests.runtime.actors import Worker
    from tests.runtime.conftest import Bench

Until = Callable[..., Any]

pytestmark = [pytest.mark.real, pytest.mark.slow]

HOSTS_2X2 = {"hosts": 2, "gpus": 2}
HOSTS_2X1 = {"hosts": 2, "gpus": 1}
"""For ranks that import torch, each by itself."""


def agent_of(bench: Bench, name: str) -> int:
    """The process of a host's agent."""
    assert isinstance(bench.engine, HostsEngine)
    (host,) = [host for host in bench.engine.hosts if host.name == name]
    assert host.hello is not None
    return host.hello.pid


def lines(workers: Worker, source: str) -> list[Any]:
    return workers.do.call(f"import os, sys\n{source}").get(10).values()


def test_ranks_wake_up_on_their_hosts(hosts: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ONLY_HERE", "of the controller")
    workers = hosts.workers(HOSTS_2X2, env={"GREETING": "hello"})
    names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "GREETING", "ONLY_HERE"]
    envs = lines(workers, f"[os.environ.get(name) for name in {names}]")
    assert envs == [[str(r), "4", str(r % 2), "2", "127.0.0.1", "hello", None] for r in range(4)]
    of_hosts = [f"os.environ['{name}']" for name in ("GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE")]
    assert lines(workers, ", ".join(of_hosts)) == [(str(r // 2), "2", str(r), "4") for r in range(4)]
    assert len(set(lines(workers, "os.environ['MASTER_PORT']"))) == 1
    parents = [psutil.Process(pid).parent() for pid in lines(workers, "os.getpid()")]
    agents = [agent_of(hosts, name) for name in ("alpha", "beta")]
    assert [zygote.ppid() for zygote in parents if zygote] == [agents[0]] * 2 + [agents[1]] * 2
    roster = roster_of(workers)
    assert [roster.host_of(rank) for rank in range(4)] == ["alpha", "alpha", "beta", "beta"]


def test_other_axes_are_divided_in_order(hosts: Bench):
    workers = hosts.workers({"dp": 3})
    assert lines(workers, "os.environ['LOCAL_RANK'], os.environ['LOCAL_WORLD_SIZE']") == [
        ("0", "2"),
        ("1", "2"),
        ("0", "1"),
    ]
    with pytest.raises(ValueError, match=r"hosts=3, and there are 2 hosts: ask for at most 2"):
        hosts.begin({"hosts": 3, "gpus": 1})


def test_keys_are_on_no_command_line_and_in_no_environment_of_a_rank(hosts: Bench):
    workers = hosts.workers({"rank": 2})
    assert lines(workers, f"os.environ.get({VARIABLE!r})") == [None, None]
    for name in ("alpha", "beta"):
        process = psutil.Process(agent_of(hosts, name))
        assert process.cmdline()[1:] == ["-m", "meshbook.runtime.engines.remote_agent", "stdin"]
        assert VARIABLE not in process.environ()


@pytest.mark.parametrize("other", [1, 2, 3])
def test_what_ranks_say_to_each_other_goes_within_a_host_and_between(hosts: Bench, other: int):
    mesh = hosts.up(HOSTS_2X2)
    messengers = mesh.spawn("messengers", Messenger)
    there = messengers.slice(hosts=other // 2, gpus=other % 2)
    data = bytes(range(256)) * 8192  # as a link between hosts carries no shared memory, it goes in pieces
    assert messengers.slice(hosts=0, gpus=0).fetch.call_one(there, data).get(20) == (other, data)
    roster_of(messengers).kill([other])
    with pytest.raises(SupervisionError, match=rf"rank {other} .*killed by SIGKILL"):
        messengers.slice(hosts=0, gpus=0).fetch.call_one(there, data).get(20)


def test_a_rank_that_works_on_holds_back_neither_answers_nor_errors(hosts: Bench, tmp_path: Path):
    workers = hosts.workers(HOSTS_2X2)
    gate = tmp_path / "gate"
    waits = f"import os, time\nwhile here().rank == 1 and not os.path.exists({str(gate)!r}): time.sleep(0.01)"
    came = workers.do.stream(f"{waits}\nhere().rank")
    assert sorted(next(came).get(10) for _ in range(3)) == [0, 2, 3]
    gate.touch()
    assert next(came).get(10) == 1
    gate.unlink()
    raises = f"{waits}\nassert here().rank != 0, 'rank 0'\nhere().rank"
    with pytest.raises(AssertionError, match="rank 0"):
        workers.do.call(raises).get(10)
    gate.touch()
    assert workers.rank.call().get(10).values() == [0, 1, 2, 3]


def test_process_groups_span_hosts(hosts: Bench):
    workers = hosts.workers(HOSTS_2X1, backend="gloo")
    source = "import torch, torch.distributed as dist\nx = torch.ones(3) + here().rank\ndist.all_reduce(x)\nx.tolist()"
    assert workers.do.call(source).get(50).values() == [[3.0] * 3] * 2


def test_a_stopped_rank_is_seen_and_looked_at_from_its_host(hosts: Bench, until: Until):
    workers = hosts.workers(HOSTS_2X2)
    roster = roster_of(workers)
    pid = roster.states[3].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        assert "3 stopped" in until(lambda: told(roster))
        assert roster.look([3])[3].trouble == f"stopped (SIGSTOP): `kill -CONT {pid}` lets it go on"
    finally:
        os.kill(pid, signal.SIGCONT)


def told(roster: Any) -> str:
    return ", ".join(f"{rank} {halt.kind}" for rank, halt in roster.look_at_vitals(time.monotonic()).items())


def test_a_dead_rank_comes_back_on_its_host(hosts: Bench, until: Until):
    workers = hosts.workers(HOSTS_2X2)
    roster = roster_of(workers)
    os.kill(roster.states[2].pid, signal.SIGKILL)
    until(lambda: roster.dead() == [2])
    assert "killed by SIGKILL (signal 9) on host beta" in roster.why_dead(2)
    assert heal_roster(roster).ranks == (2,)
    assert workers.rank.call().get(10).values() == [0, 1, 2, 3]
    assert psutil.Process(psutil.Process(roster.states[2].pid).ppid()).ppid() == agent_of(hosts, "beta")


@pytest.mark.skipif(sys.platform != "linux", reason="the limits of another process are not to be set")
def test_a_host_whose_agent_is_out_of_descriptors_lives_on(hosts: Bench, until: Until):
    roster = roster_of(hosts.up(HOSTS_2X2))
    until(lambda: len(roster.crew.stats(range(4))) == 4, 10)
    agent = agent_of(hosts, "beta")
    usual = resource.prlimit(agent, resource.RLIMIT_NOFILE)
    held = set(map(int, os.listdir(f"/proc/{agent}/fd")))
    full = next(fd for fd in itertools.count() if fd not in held)
    resource.prlimit(agent, resource.RLIMIT_NOFILE, (full, usual[1]))
    until(lambda: len(roster.crew.stats(range(4))) == 2, 10)  # it beats on, and knows nothing of its ranks for now
    resource.prlimit(agent, resource.RLIMIT_NOFILE, usual)
    until(lambda: len(roster.crew.stats(range(4))) == 4, 10)
    assert roster.alive() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("signum", "why"), [(signal.SIGKILL, "its agent"), (signal.SIGSTOP, "no sign of life for 4 s")]
)
def test_a_lost_host_is_the_death_of_its_ranks(own: Bench, until: Until, signum: int, why: str):
    workers = own.workers(HOSTS_2X2)
    roster = roster_of(workers)
    pids = [roster.states[rank].pid for rank in (2, 3)]
    waiting = workers.slice(hosts=1, gpus=0).do.call_one("import time\ntime.sleep(60)")
    started = time.monotonic()
    os.kill(agent_of(own, "right"), signum)
    with pytest.raises(SupervisionError, match=rf"ended: host right was lost: .*{why}"):
        waiting.get(10)
    assert time.monotonic() - started < 5.5
    assert roster.dead() == [2, 3]
    assert workers.slice(hosts=0).rank.call().get(10).values() == [0, 1]
    until(lambda: not any(psutil.pid_exists(pid) for pid in pids))
    assert heal_roster(roster).ranks == (2, 3)
    assert workers.rank.call().get(10).values() == [0, 1, 2, 3]


def test_process_groups_are_made_anew_over_a_host_that_came_back(own: Bench, until: Until):
    workers = own.workers(HOSTS_2X1, backend="gloo")
    roster = roster_of(workers)
    os.kill(agent_of(own, "left"), signal.SIGKILL)  # with it rank 0, which served the store
    until(lambda: roster.dead() == [0])
    assert heal_roster(roster).ranks == (0,)
    source = "import torch, torch.distributed as dist\nx = torch.ones(1)\ndist.all_reduce(x)\nx.item()"
    assert workers.do.call(source).get(50).values() == [2.0] * 2


def test_a_mesh_that_fails_before_its_ranks_start_leaves_no_port_on_a_host(
    hosts: Bench, monkeypatch: pytest.MonkeyPatch
):
    assert isinstance(hosts.engine, HostsEngine)
    find = hosts.engine._find

    def refuse(name: str, folder: str) -> Any:
        if name == "beta":
            raise SpawnError("its folder cannot be brought there")
        return find(name, folder)

    hosts.up({"rank": 2}).stop().get(10)
    alpha = psutil.Process(agent_of(hosts, "alpha"))
    before = alpha.num_fds()
    monkeypatch.setattr(hosts.engine, "_find", refuse)
    with pytest.raises(SpawnError, match="its folder cannot be brought there"):
        hosts.up({"rank": 2})
    assert alpha.num_fds() == before


def test_one_launcher_for_all_hosts(make: Callable[..., Bench], until: Until, tmp_path: Path):
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\nfor i in 0 1; do SLURM_PROCID=$i "$@" & done; wait\n')
    srun.chmod(0o700)
    bench = make(["", ""], str(srun))
    workers = bench.workers({"dp": 4})
    roster, node = roster_of(workers), os.uname().nodename
    here, there = roster.host_of(0), roster.host_of(3)
    assert here != there
    assert node in (here, there)
    assert {name.removesuffix("-0").removesuffix("-1") for name in (here, there)} == {node}
    assert workers.rank.call().get(10).values() == [0, 1, 2, 3]
    os.kill(agent_of(bench, there), signal.SIGKILL)
    roster.kill([1])
    until(lambda: roster.dead() == [1, 2, 3])
    assert heal_roster(roster, [1]).ranks == (1,)
    with pytest.raises(SpawnError, match=rf"host {there} was lost: its agent.*; its launcher cannot start one host"):
        heal_roster(roster)
    until(lambda: roster.dead() == [2, 3])
    assert workers.slice(dp=1).rank.call_one().get(10) == 1


SRUN = """#!/bin/sh
trap 'echo slurmstepd: JOB 7 CANCELLED DUE TO TIME LIMIT; kill -9 $(cat {pids})' TERM
echo waiting for resources
for i in 0 1; do SLURM_PROCID=$i "$@" & echo $! >>{pids}; done
wait; wait
"""


def test_an_allocation_that_ends_says_why(make: Callable[..., Bench], until: Until, tmp_path: Path):
    srun = tmp_path / "srun"
    srun.write_text(SRUN.format(pids=tmp_path / "pids"))
    srun.chmod(0o700)
    bench = make(["", ""], str(srun))
    workers = bench.workers({"dp": 2})
    waiting = workers.do.call("import time\ntime.sleep(60)")
    assert isinstance(bench.engine, HostsEngine)
    agent = psutil.Process(agent_of(bench, bench.engine.hosts[0].name))
    launcher = agent.parent()
    assert launcher is not None
    launcher.terminate()
    with pytest.raises(
        SupervisionError, match=r"was lost: its agent .*; its launcher said: slurmstepd: JOB 7 CANCELLED"
    ):
        waiting.get(20)
    until(lambda: roster_of(workers).dead() == [0, 1])
    assert "DUE TO TIME LIMIT" in roster_of(workers).why_dead(1)


SITE = """
import importlib.metadata, os, platform, sys
if "ODD" in os.environ:
    version, odd = importlib.metadata.version, os.environ["ODD"]
    importlib.metadata.version = lambda name: "9.9.9" if name == odd else version(name)
    if odd == "python":
        platform.python_version = lambda: "3.99.1"
"""


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ("meshbook", r"host right: it runs meshbook 9\.9\.9, and this notebook \d+\.\d+\.\d+$"),
        ("python", r"host right: it runs Python 3\.99\.1, and this notebook 3\.\d+\.\d+$"),
        ("torch", r"host right: it has torch 9\.9\.9, and this notebook \d+\.\d+\.\d+"),
    ],
)
def test_a_host_with_other_versions_is_refused_with_both(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, odd: str, why: str
):
    (tmp_path / "sitecustomize.py").write_text(SITE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    bench = make(["left", "right"], f"sh -c 'test $0 = left || export ODD={odd}; exec {{command}}' {{host}}")
    with pytest.raises(SpawnError, match=why):
        bench.begin(HOSTS_2X2)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("sh -c 'echo {host}: no route >&2; exit 7'", r"host b.d: `sh -c .*` exited with code 7\n  b.d: no route"),
        (
            "sh -c 'exec {command} </dev/null' {host}",
            r"host b.d: .*\n  meshbook: no agent on .*: nothing came by standard input",
        ),
        ("sh -c 'sleep 60' {host}", r"host b.d: its agent has not come within 0.5 s: it is to dial 127.0.0.1; "),
        (
            "sh -c 'echo for {host}; printf Password:; exec sleep 60'",
            r"^host b.d: its agent has not come within 0.5 s: .*\n  its launcher said: Password:$",
        ),
    ],
)
def test_a_host_that_does_not_come(make: Callable[..., Bench], command: str, why: str):
    bench = make(["bad", "bed"], command, timeout=0.5 if "sleep" in command else 20)
    with pytest.raises(SpawnError, match=why):
        bench.begin(HOSTS_2X2)


def test_a_launcher_that_is_not_there_is_named_each_time(make: Callable[..., Bench]):
    bench = make(["left", "right"], "no-such-launcher {host}")
    for _ in range(2):  # the second time it would wait for agents that nobody has started
        with pytest.raises(
            SpawnError, match=r"^cannot run the launcher `no-such-launcher`: No such file or directory$"
        ):
            bench.begin(HOSTS_2X2)


def test_who_waits_for_hosts_that_are_given_back_is_told(make: Callable[..., Bench], until: Until):
    engine = make(["left"], "sh -c 'sleep 60' {host}", timeout=15).engine
    assert isinstance(engine, HostsEngine)
    engine.warm()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(engine.seats, {"rank": 1})
        until(waiting.running)
        engine.give_back()
        assert "given back" in str(waiting.exception(5))
    with pytest.raises(SpawnError, match=r"^these hosts were given back$"):
        engine.warm()


def test_hosts_that_nobody_has_used_are_given_back_too(reactor: Reactor):
    ended: list[str] = []

    class Job(CommandLauncher):
        def close(self) -> None:
            ended.append("the job")

    engine = HostsEngine(reactor, Job(reactor, "", ["left"]), 1)
    with pytest.raises(ValueError, match="hosts=3"):
        engine.seats({"hosts": 3})
    engine.give_back()
    engine.close()
    assert ended == ["the job"]


def test_a_summons_is_read_as_it_was_written():
    summons = Summons((Address("tcp://10.0.0.1:5", b"\1\2", b"k"),), ("torch?",))
    assert Summons.read(summons.text()) == summons
    with pytest.raises(ValueError, match="no summons of a controller"):
        Summons.read("bm8=")
    with pytest.raises(ValueError, match="which of 2 hosts is this\\? none of MESHBOOK_HOST_INDEX"):
        Summons(summons.addresses * 2).address({})
    with pytest.raises(ValueError, match="'2' is no host"):
        Summons(summons.addresses * 2).address({"SLURM_PROCID": "2"})


def test_nothing_is_imported_of_zmq_for_one_machine():
    code = (
        "import sys; import meshbook.runtime.session as s; s.session().engine('local'); sys.exit('zmq' in sys.modules)"
    )
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0


SSH = '#!/bin/sh\nhost=$1; shift\nexec sh -c "$*"\n'
"""As sshd does: what stands behind the host is one line for a shell there."""

KUBECTL = '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n'
"""As `kubectl exec`: what stands behind `--` is run as it is."""


@pytest.mark.parametrize(
    ("name", "script", "command"),
    [
        ("ssh", SSH, "ssh -o BatchMode=yes {host}"),
        ("ssh", SSH, "ssh {host} 'cd / && {command}'"),
        ("kubectl", KUBECTL, "kubectl exec -i {host} --"),
    ],
)
def test_launchers_of_the_clusters_page(
    make: Callable[..., Bench], tmp_path: Path, name: str, script: str, command: str
):
    stand_in = tmp_path / name
    stand_in.write_text(script.replace("host=$1; shift", "while [ $1 = -o ]; do shift 2; done; shift"))
    stand_in.chmod(0o700)
    bench = make(["worker-0", "worker-1"], command.replace(name, str(stand_in), 1))
    workers = bench.workers(HOSTS_2X2)
    assert workers.rank.call().get(20).values() == [0, 1, 2, 3]
    assert [roster_of(workers).host_of(rank) for rank in (0, 3)] == ["worker-0", "worker-1"]
