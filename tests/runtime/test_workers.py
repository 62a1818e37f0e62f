"""Programs that attach to worker loops: their meshes of hosts, and what is left when they end."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from meshbook.runtime import (
    HostMesh,
    SupervisionError,
    attach_to_workers,
    config,
    run_worker_loop_forever,
    start_worker_loop_forever,
    this_host,
)
from meshbook.runtime.engines.worker_loop import WorkerLoop
from meshbook.runtime.errors import SpawnError
from meshbook.runtime.future import Future, Promise
from meshbook.runtime.host import Hosts
from meshbook.runtime.session import session, spawn_procs
from tests.runtime.guests import Guest
from tests.runtime.memories import Owner, Reader
from tests.runtime.troupe import Counter, Courier, Diary

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage

pytestmark = [pytest.mark.real, pytest.mark.slow]

TRUST: dict[str, Any] = {"ca": "trust_all_connections"}
PLACES = ["inproc://left", "inproc://right"]

Begin = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def attached(_processes: Any) -> Iterator[HostMesh]:
    """Two hosts, whose worker loops are threads of this process."""
    loops = [start_worker_loop_forever(**TRUST, address=place) for place in PLACES]
    hosts = attach_to_workers(**TRUST, workers=PLACES)
    assert hosts.initialized.get(60) is True
    yield hosts
    hosts.shutdown().get()
    assert [loop.get(10) for loop in loops] == [None, None]


@pytest.fixture
def hosts(attached: HostMesh, process_stage: Stage) -> HostMesh:
    return attached


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Starts worker loops as processes of their own, and ends them after the test."""
    loops: list[subprocess.Popen[str]] = []

    def started(address: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "meshbook.runtime.engines.worker_loop", address]
        loops.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return loops[-1]

    yield started
    for loop in loops:
        loop.kill()
        loop.communicate()


def hosts_of(pids: list[int]) -> list[int]:
    """The agents that the processes belong to."""
    zygotes = [psutil.Process(pid).parent() for pid in pids]
    return [zygote.ppid() for zygote in zygotes if zygote is not None]


def test_a_mesh_of_hosts_has_their_axis(hosts: HostMesh) -> None:
    assert (hosts.sizes, repr(hosts), hosts == this_host()) == ({"hosts": 2}, "<HostMesh {hosts=2}>", False)
    again = pickle.loads(pickle.dumps(hosts))
    assert (again, hash(again)) == (hosts, hash(hosts))
    assert again.slice(hosts=1) == hosts.slice(hosts=1) != hosts.slice(hosts=0)
    assert again.initialized.get(1) is True
    with pytest.raises(RuntimeError, match="cannot shut down `HostMesh` that is a reference"):
        again.shutdown()


def test_processes_are_laid_over_the_hosts(hosts: HostMesh, process_stage: Stage) -> None:
    procs = process_stage.owned(hosts.spawn_procs({"gpus": 2}))
    assert procs.sizes == {"hosts": 2, "gpus": 2}
    pids = procs.spawn("diary", Diary).pid.call().get(20).values()
    agents = hosts_of(pids)
    assert agents == [agents[0]] * 2 + [agents[2]] * 2
    assert agents[0] != agents[2]
    assert procs.slice(hosts=1, gpus=0).host_mesh == hosts.slice(hosts=1)


def test_slices_of_hosts_get_processes_there_only(hosts: HostMesh, process_stage: Stage) -> None:
    whole = process_stage.owned(hosts.spawn_procs()).spawn("diary", Diary).pid.call().get(20).values()
    one = process_stage.owned(hosts.slice(hosts=1).spawn_procs({"gpus": 2}))
    assert one.sizes == {"gpus": 2}
    assert hosts_of(one.spawn("diary", Diary).pid.call().get(20).values()) == [hosts_of(whole)[1]] * 2
    backwards = process_stage.owned(hosts.flatten("h").slice(h=slice(1, 2)).spawn_procs({"gpus": 1}))
    assert backwards.sizes == {"h": 1, "gpus": 1}


def test_ranks_start_processes_where_they_live_and_where_they_are_told(hosts: HostMesh, process_stage: Stage) -> None:
    procs = process_stage.owned(hosts.spawn_procs())
    agents = hosts_of(procs.spawn("diary", Diary).pid.call().get(20).values())
    guests = procs.spawn("guests", Guest)
    assert guests.hosts_here.call().get(30).values() == [[agents[0]], [agents[1]]]
    assert guests.slice(hosts=1).hosts_on.call_one(hosts).get(30) == agents
    with pytest.raises(NotImplementedError, match="a rank cannot attach to workers"):
        guests.slice(hosts=0).attach.call_one(PLACES).get(30)


def test_a_host_that_is_sent_elsewhere_is_the_same_host(hosts: HostMesh, process_stage: Stage, leaks: Any) -> None:
    away, here = process_stage.owned(hosts.spawn_procs()), process_stage.procs({"r": 1})
    guests, neighbour = away.spawn("guests", Guest), here.spawn("guest", Guest)
    assert guests.host_here.call().get(30).values() == [hosts.slice(hosts=0), hosts.slice(hosts=1)]
    assert neighbour.host_here.call_one().get(30) == this_host()
    asked = guests.slice(hosts=0)
    assert asked.host_of.call_one(away.slice(hosts=1)).get(30) == hosts.slice(hosts=1)
    assert asked.host_of.call_one(here).get(30) == this_host()
    told = asked.host_here.call_one().get(30)
    procs = process_stage.owned(told.spawn_procs())
    assert procs.spawn("guest", Guest).host_here.call_one().get(30) == hosts.slice(hosts=0)
    agents = hosts_of(away.spawn("diary", Diary).pid.call().get(20).values())
    assert asked.hosts_on.call_one(this_host()).get(30) != [agents[0]], "it runs on the client's own machine"
    leaks.allow_what_stands()  # the engine there is that of all tests from here on


@pytest.mark.parametrize("is_here", [True, False])
def test_ranks_of_this_host_and_of_others_talk(hosts: HostMesh, process_stage: Stage, is_here: bool) -> None:
    away, here = process_stage.owned(hosts.spawn_procs()), process_stage.procs({"r": 2})
    mine, theirs = (here, away) if is_here else (away, here)
    couriers, asked = mine.spawn("courier", Courier), theirs.spawn("counter", Counter, 3)
    assert couriers.total.call(asked, 0).get(20).values() == [6, 6]
    data = os.urandom(3_000_000)  # in pieces, by way of this process
    assert couriers.echo_of.call(asked, data).get(30).values() == [data] * 2


@pytest.mark.parametrize("is_here", [True, False])
def test_what_an_actor_has_said_comes_before_what_is_said_after_it(
    hosts: HostMesh, process_stage: Stage, until: Callable[..., Any], is_here: bool
) -> None:
    """Where it goes by way of this process, which speaks to the same rank: here, or on another host."""
    guest = process_stage.owned(hosts.slice(hosts=0).spawn_procs()).spawn("guest", Guest)
    procs = process_stage.procs() if is_here else process_stage.owned(hosts.slice(hosts=1).spawn_procs())
    counter = procs.spawn("counter", Counter)
    guest.tell.call_one(counter).get(20)
    until(lambda: counter.add.call_one(0).get(20) == 1)  # the first waits for the two to be linked
    counter.add.call_one(-1).get(20)
    seen: list[int] = []
    for _ in range(50):
        guest.tell.call_one(counter).get(20)
        seen.append(counter.add.call_one(0).get(20))
    assert seen == list(range(1, 51))


def test_ranks_of_other_hosts_read_buffers(hosts: HostMesh, process_stage: Stage) -> None:
    procs = process_stage.owned(hosts.spawn_procs())
    buffer = procs.slice(hosts=0).spawn("owner", Owner).lend.call_one(b"1234").get(20)
    assert procs.slice(hosts=1).spawn("reader", Reader).read.call_one(buffer, 4).get(20) == b"1234"
    memory = bytearray(4)
    buffer.read_into(memoryview(memory)).get(20)
    assert memory == b"1234"


def test_hosts_that_were_left_can_be_used_again(hosts: HostMesh, process_stage: Stage, leaks: Any) -> None:
    first = hosts_of(hosts.spawn_procs().spawn("diary", Diary).pid.call().get(20).values())
    hosts.stop().get()
    assert not any(psutil.pid_exists(pid) for pid in first)
    again = process_stage.owned(hosts.spawn_procs())
    assert again.spawn("counter", Counter).add.call(1).get(30).values() == [1, 1]
    leaks.allow_what_stands()  # the new agents are those of all tests from here on


def test_what_actors_have_spawned_on_the_hosts_ends_with_them(
    begin: Begin, tmp_path: Path, process_stage: Stage
) -> None:
    loop = begin(f"ipc://{tmp_path}/loop")
    hosts = attach_to_workers(**TRUST, workers=[f"ipc://{tmp_path}/loop"])
    guest = process_stage.procs({"r": 1}).spawn("guest", Guest)
    kept = guest.keep_on.call_one(hosts).get(30)
    (pid,) = kept.pid.call().get(20).values()
    hosts.stop().get()
    assert not psutil.pid_exists(pid)
    with pytest.raises(SupervisionError, match="stopped: stopped by client"):
        kept.pid.call().get(20)
    assert guest.keep_on.call_one(hosts).get(30).pid.call().get(20).values() != [pid]
    hosts.shutdown().get()
    assert loop.wait(10) == 0
    assert process_stage.faults.empty(), "it was meant"


def test_what_runs_on_the_same_list_of_hosts_is_stopped_and_on_no_other(
    begin: Begin, tmp_path: Path, hosts: HostMesh
) -> None:
    loop = begin(f"ipc://{tmp_path}/loop")
    own = [f"ipc://{tmp_path}/loop"]
    mine, more = attach_to_workers(**TRUST, workers=own), attach_to_workers(**TRUST, workers=[*own, PLACES[0]])
    of_a_notebook = spawn_procs({"rank": 1}, session().use_hosts(own), backend="none").spawn("counter", Counter)
    on_both = more.spawn_procs().spawn("counter", Counter)
    assert (of_a_notebook.add.call(1).get(30).values(), on_both.add.call(1).get(30).values()) == ([1], [1, 1])
    mine.stop().get()
    with pytest.raises(SupervisionError, match="stopped: stopped by client"):
        of_a_notebook.add.call(1).get(10)
    assert on_both.add.call(1).get(10).values() == [2, 2]
    more.stop().get()
    mine.shutdown().get()
    assert loop.wait(10) == 0


@dataclass
class Workspace:
    """As Monarch's: folders of the program, and what they are called at the other end."""

    dirs: dict[str, str]


def test_a_workspace_comes_to_the_hosts(begin: Begin, tmp_path: Path, process_stage: Stage) -> None:
    place, folder = f"ipc://{tmp_path}/loop", tmp_path / "project"
    folder.mkdir()
    module = folder / "brought_by_workspace.py"
    loop = begin(place)
    hosts = attach_to_workers(**TRUST, workers=[place])
    for value in (1, 22):  # of another length: what Python has compiled goes by that and the time
        module.write_text(f"VALUE = {value}")
        asyncio.run(hosts.sync_workspace(Workspace({str(folder): "project"}) if value == 1 else folder))
        guest = hosts.spawn_procs().spawn("guest", Guest)
        path, found = guest.module.call_one(module.stem).get(20)
        assert (found, Path(path).name, Path(path).is_relative_to(tmp_path)) == (value, module.name, False)
    there = guest.slice(hosts=0).host_here.call_one().get(20)
    with pytest.raises(RuntimeError, match="is a reference: who has attached to the hosts brings a workspace"):
        asyncio.run(there.sync_workspace(folder))
    hosts.shutdown().get()
    assert loop.wait(10) == 0


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ((3,), TypeError, r"a workspace is the path of a folder, or has some in `dirs`, unlike 3"),
        ((Workspace({}),), NotImplementedError, r"a workspace is one folder here, not 0"),
        ((".", True), NotImplementedError, r"sync_workspace\(conda=True\) is not here"),
        ((".", False, True), NotImplementedError, r"sync_workspace\(auto_reload=True\) is not here"),
        (("/no/such/folder",), SpawnError, r"/no/such/folder cannot be read: No such file"),
    ],
)
def test_workspaces_that_are_none(hosts: HostMesh, given: tuple[Any, ...], kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        asyncio.run(hosts.sync_workspace(*given))


def test_a_program_may_be_told_its_workers_later(hosts: HostMesh, process_stage: Stage) -> None:
    told: list[Promise[str]] = [Promise(), Promise()]
    later = attach_to_workers(**TRUST, workers=[promise.future for promise in told])
    assert not later.initialized.done()
    for promise, place in zip(told, PLACES, strict=True):
        promise.resolve(place)
    assert later.initialized.get(20) is True
    assert later == hosts


def test_hosts_whose_addresses_do_not_come_can_be_left(process_stage: Stage) -> None:
    told: Promise[str] = Promise()
    hosts = attach_to_workers(**TRUST, workers=[told.future, "inproc://nobody"])
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(hosts.stop).result(5).get() is None
        assert pool.submit(hosts.shutdown).result(5).get() is None
    told.resolve("inproc://left")
    with pytest.raises(SpawnError, match="shut down before their addresses came"):
        hosts.initialized.get(10)


def test_hosts_whose_addresses_are_not_to_come_can_be_left(process_stage: Stage) -> None:
    told: Promise[str] = Promise()
    told.fail(OSError("no such pod"))
    with pytest.raises(OSError, match="no such pod"), attach_to_workers(**TRUST, workers=[told.future]) as hosts:
        hosts.spawn_procs()


def test_loops_are_ended_also_where_processes_there_could_not_be(
    begin: Begin, tmp_path: Path, process_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"ipc://{tmp_path}/loop"
    loop = begin(place)
    hosts = attach_to_workers(**TRUST, workers=[place])
    hosts.initialized.get(30)

    def fail(hosts: Hosts) -> None:
        raise SpawnError("no answer from the agent within 10 s")

    with monkeypatch.context() as patch:
        patch.setattr(Hosts, "end", fail)
        with pytest.raises(SpawnError, match="no answer from the agent"):
            hosts.shutdown()
    assert loop.wait(20) == 0
    session().release(session().engine(session().use_workers([place])))


def test_a_mesh_of_hosts_ends_with_its_block(begin: Begin, tmp_path: Path, process_stage: Stage) -> None:
    loop = begin(f"ipc://{tmp_path}/loop")

    async def use() -> list[int]:
        async with attach_to_workers(**TRUST, workers=[f"ipc://{tmp_path}/loop"]) as hosts:
            procs = hosts.spawn_procs({"gpus": 2})
            return (await procs.spawn("counter", Counter).add.call(2)).values()

    assert asyncio.run(use()) == [2, 2]
    assert loop.wait(10) == 0


def test_a_worker_that_is_killed_takes_its_ranks_along(begin: Begin, tmp_path: Path, process_stage: Stage) -> None:
    places = [f"ipc://{tmp_path}/{name}" for name in ("one", "two")]
    loops = [begin(place) for place in places]
    hosts = attach_to_workers(**TRUST, workers=places)
    lasting = hosts.spawn_procs({"gpus": 1})
    diary = lasting.spawn("diary", Diary)
    lost, kept = diary.pid.call().get(30).values()
    lasting.initialized.get(30)  # an answer may overtake what tells that a rank is ready, and its pid
    loops[0].kill()
    with pytest.raises(SupervisionError, match=rf"rank 0 .*pid {lost}\) ended: host {places[0]} was lost"):
        while True:
            diary.pid.call().get(20)
    assert "was lost" in process_stage.faults.get(timeout=10).report()
    assert diary.slice(hosts=1).pid.call_one().get(20) == kept
    on_the_other = hosts.slice(hosts=1).spawn_procs()
    assert on_the_other.spawn("counter", Counter).add.call_one(1).get(20) == 1
    loops[0] = begin(places[0])
    procs = hosts.spawn_procs()
    assert procs.spawn("counter", Counter).add.call(1).get(30).values() == [1, 1], "one in its place is found"
    hosts.shutdown().get()
    assert [loop.wait(10) for loop in loops] == [0, 0]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_loop_ends_by_a_signal(begin: Begin, tmp_path: Path, signum: signal.Signals) -> None:
    loop = begin(f"ipc://{tmp_path}/loop")
    assert loop.stdout is not None
    assert loop.stdout.readline() == f"meshbook: a worker loop waits at ipc://{tmp_path}/loop\n"
    loop.send_signal(signum)
    assert loop.communicate(timeout=10) == ("", None)
    assert loop.returncode == 128 + signum


def test_a_program_can_be_a_loop(tmp_path: Path, process_stage: Stage) -> None:
    source = "from meshbook import run_worker_loop_forever as f; f(ca='trust_all_connections', address={!r}); print(1)"
    place = f"ipc://{tmp_path}/loop"
    with subprocess.Popen([sys.executable, "-c", source.format(place)], stdout=subprocess.PIPE) as program:
        hosts = attach_to_workers(**TRUST, workers=[place])
        hosts.initialized.get(30)
        hosts.shutdown().get()
        assert program.communicate(timeout=10) == (b"", None), "it has not returned"
        assert program.returncode == 0


def test_a_worker_that_is_not_there_is_named(process_stage: Stage, tmp_path: Path) -> None:
    with config.configured(host_spawn_ready_timeout="200ms"):
        hosts = attach_to_workers(**TRUST, workers=[f"ipc://{tmp_path}/nobody"])
        says = rf"host ipc://{tmp_path}/nobody: no worker loop has answered there within 0\.2 s"
        with pytest.raises(SpawnError, match=says):
            hosts.initialized.get(20)
        with pytest.raises(SpawnError, match=says):
            hosts.spawn_procs()
    hosts.stop().get()


def test_who_waits_for_processes_on_hosts_that_do_not_come_is_told(process_stage: Stage, tmp_path: Path) -> None:
    here = process_stage.procs({"r": 1})
    guest, other = here.spawn("guest", Guest), here.spawn("other", Guest)
    with config.configured(host_spawn_ready_timeout="200ms"):
        hosts = attach_to_workers(**TRUST, workers=[f"ipc://{tmp_path}/nobody"])
        kept = guest.keep_on.call_one(hosts).get(30)
        for _ in range(2):
            with pytest.raises(SupervisionError, match=r"no worker loop has answered there within 0\.2 s"):
                kept.pid.call().get(20)
    assert "no worker loop has answered" in process_stage.faults.get(timeout=10).report()
    assert other.keep_on.call_one(this_host()).get(30).pid.call_one().get(20) > 0, "others are served"
    hosts.stop().get()


def test_others_are_served_while_hosts_are_on_their_way(process_stage: Stage, tmp_path: Path) -> None:
    here = process_stage.procs({"r": 1})
    guest, other = here.spawn("guest", Guest), here.spawn("other", Guest)
    hosts = attach_to_workers(**TRUST, workers=[f"ipc://{tmp_path}/nobody"])
    kept = guest.keep_on.call_one(hosts).get(10)
    assert other.keep_on.call_one(this_host()).get(10).pid.call_one().get(10) > 0
    assert guest.host_of_kept.call_one().get(10) == hosts.slice(hosts=0), "it is known before it is there"
    assert not hosts.initialized.done()
    hosts.stop().get()
    with pytest.raises(SupervisionError, match=r"nobody was given back"):
        kept.pid.call().get(10)
    assert "was given back" in process_stage.faults.get(timeout=10).report()


def test_processes_that_are_stopped_before_they_are_there_end_as_they_come(
    begin: Begin, process_stage: Stage, tmp_path: Path, until: Callable[..., Any]
) -> None:
    guest = process_stage.procs({"r": 1}).spawn("guest", Guest)
    hosts = attach_to_workers(**TRUST, workers=[f"ipc://{tmp_path}/loop"])
    guest.keep_on.call_one(hosts).get(10)
    guest.stop_kept.call_one().get(10)
    gone = session().root._gone
    before = len(gone)
    loop = begin(f"ipc://{tmp_path}/loop")
    until(lambda: len(gone) > before)
    assert list(gone.values())[before:] == ["the mesh has status: stopped: stopped by client"]
    hosts.shutdown().get()
    assert loop.wait(10) == 0


def test_a_program_may_end_while_an_actor_starts_processes() -> None:
    source = """
from meshbook import this_host
from meshbook.runtime.session import session, spawn_procs
from tests.runtime.guests import Guest
guest = this_host().spawn_procs({"r": 1}).spawn("guest", Guest)
guest.keep_on.call_one(this_host()).get()
"""
    ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


def _arrived(value: Any) -> Future[Any]:
    promise: Promise[Any] = Promise()
    promise.resolve(value)
    return promise.future


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ({"workers": []}, ValueError, r"workers is a list of addresses, such as .*, not \[\]"),
        ({"workers": "tcp://a:1"}, ValueError, r"workers is a list of addresses, such as .*, not 'tcp://a:1'"),
        ({"workers": [3]}, TypeError, r"a worker is an address, or a Future of one, not 3"),
        ({"workers": ["tcp://a"]}, ValueError, r"'tcp://a' names no host and port"),
        ({"workers": ["inproc://a"] * 2}, ValueError, r"inproc://a is named twice"),
        ({"workers": ["inproc://a"], "ca": b"x"}, NotImplementedError, r"certificates are not here: say ca='trust_all"),
        ({"workers": ["inproc://a"], "private_key": b"x"}, NotImplementedError, r"certificates are not here"),
    ],
)
def test_bad_input_is_one_line(given: dict[str, Any], kind: type[Exception], says: str, process_stage: Stage) -> None:
    with pytest.raises(kind, match=says) as caught:
        attach_to_workers(**TRUST | given)
    assert "\n" not in str(caught.value)


def test_what_is_wrong_with_an_address_that_comes_later_is_told(process_stage: Stage) -> None:
    hosts = attach_to_workers(**TRUST, workers=[_arrived("tcp://a")])
    with pytest.raises(ValueError, match="'tcp://a' names no host and port"):
        hosts.initialized.get(10)


def test_the_end_of_a_loop_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(loop: WorkerLoop) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(WorkerLoop, "serve", fail)
    with pytest.raises(MemoryError, match="no room"):
        start_worker_loop_forever(**TRUST, address="inproc://short").get(10)


def test_a_loop_that_cannot_be_is_told() -> None:
    with pytest.raises(ValueError, match=r"'node7' is no address of a worker loop"):
        run_worker_loop_forever(**TRUST, address="node7")
    with pytest.raises(NotImplementedError, match="certificates are not here"):
        start_worker_loop_forever(ca="/etc/ca.pem", address="inproc://a")
