"""What rank processes are born with, how their ends are told, and that nothing of them stays."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from meshbook.runtime.engines.agent import Agent
from meshbook.runtime.engines.spec import RankSpec
from meshbook.runtime.errors import SpawnError, SupervisionError
from meshbook.runtime.mesh import roster_of
from meshbook.runtime.wire.outlet import Outlet
from tests.holdings import no_descriptor_left
from tests.runtime.actors import Glutton, Worker
from tests.stopping import stop

if TYPE_CHECKING:
    from tests.runtime.conftest import Bench

Until = Callable[..., Any]

pytestmark = pytest.mark.real

HOWS = [
    pytest.param("fork", marks=pytest.mark.skipif(sys.platform != "linux", reason="ranks are forked on Linux only")),
    pytest.param("exec", marks=pytest.mark.slow),
]


@pytest.fixture(params=HOWS)
def how(request: pytest.FixtureRequest) -> str:
    return request.param


def test_the_world_a_rank_wakes_up_in(local: Bench, how: str, tmp_path: Path):
    names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GREETING"]
    (tmp_path / "only_here.py").write_text("import sys\nsys.was_imported = True\n")
    options: dict[str, Any] = {"env": {"GREETING": "hello"}, "cwd": str(tmp_path), "preload": ["only_here"]}
    path = [str(tmp_path), str(Path(__file__).parents[3]), *sys.path]
    workers = local.workers({"dp": 2}, how, path=path, **options)
    envs = workers.do.call(f"import os\n[os.environ.get(name) for name in {names}]").get(10).values()
    port = envs[0][5]
    assert envs == [[str(r), "2", str(r), "2", "127.0.0.1", port, "hello"] for r in range(2)]
    assert workers.do.call("os.getcwd()").get(10).values() == [str(tmp_path)] * 2
    assert (
        workers.do.call("import sys\n(sys.path, sys.was_imported, sys.argv)").get(10).values()
        == [(path, True, [""])] * 2
    )
    assert (
        "OPENBLAS_NUM_THREADS" in os.environ
        or workers.do.call(
            "[name for name in os.environ if name in ('OPENBLAS_NUM_THREADS', 'GLIBC_TUNABLES', 'PYTHONPATH')]"
        )
        .get(10)
        .values()
        == [[name for name in ("PYTHONPATH",) if name in os.environ]] * 2
    )


def test_a_rank_has_a_session_of_its_own_and_nothing_to_read(local: Bench, how: str):
    workers = local.workers(how=how)
    source = "import os, sys\n(os.getpid(), os.getsid(0), os.getpgrp(), os.read(0, 10), sys.stdin.read())"
    answers = workers.do.call(source).get(10).values()
    assert [answer[1:] for answer in answers] == [(answer[0], answer[0], b"", "") for answer in answers]
    assert {answer[0] for answer in answers} == {state.pid for state in roster_of(workers).states.values()}


def test_the_port_is_held_for_scripts_of_ranks(local: Bench):
    workers = local.workers()
    [port] = {int(told) for told in workers.do.call("import os\nos.environ['MASTER_PORT']").get(10).values()}
    for address in ("127.0.0.1", "0.0.0.0"):
        with socket.socket() as thief, pytest.raises(OSError, match="in use"):
            thief.bind((address, port))
    for _ in range(2):
        with socket.create_server(("0.0.0.0", port)):  # as torch does
            """A script serves its store there."""
    roster_of(workers).stop()
    with socket.create_server(("127.0.0.1", port)):
        """Now it is free."""


def test_the_port_of_the_store_is_free_when_the_rank_has_ended_that_serves_there(local: Bench, until: Until):
    """Who comes there then is refused, and does not wait."""
    workers = local.workers()
    [store] = psutil.Process(roster_of(workers).states[0].pid).net_connections("tcp")
    os.kill(roster_of(workers).states[0].pid, signal.SIGKILL)
    until(lambda: roster_of(workers).dead() == [0])
    with socket.create_server(store.laddr):
        """Now it is free."""


def test_random_numbers_differ_and_hashes_do_not(local: Bench):
    workers = local.workers({"rank": 3})
    source = "import random, numpy\n(random.random(), float(numpy.random.rand()), hash('a'))"
    answers = workers.do.call(source).get(10).values()
    again = local.workers({"rank": 3}).do.call(source).get(10).values()
    assert len({answer[0] for answer in answers + again}) == 6
    assert len({answer[1] for answer in answers + again}) == 6
    assert len({answer[2] for answer in answers}) == 1


def test_a_forked_rank_imports_what_it_needs_without_torch(local: Bench, how: str):
    workers = local.workers(how=how, preload=["json.tool"])
    source = "import sys\n('json.tool' in sys.modules, 'torch' in sys.modules)"
    assert workers.do.call(source).get(10).values() == [(True, False)] * 2


@pytest.mark.parametrize(
    ("source", "end"),
    [
        ("import os\nos._exit(3)", "exited with code 3"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", r"killed by SIGKILL \(signal 9\)"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)", r"killed by SIGTERM \(signal 15\)"),
    ],
)
def test_how_a_rank_ended_is_told_with_its_last_words(local: Bench, source: str, end: str):
    workers = local.workers({"dp": 2})
    words = "import sys\nprint('last', 'words', file=sys.stderr)\n"
    told = rf"workers\.do.*rank 1 \(dp=1, pid \d+\) {end} on host .*\n  last words"
    with pytest.raises(SupervisionError, match=told):
        workers.slice(dp=1).do.call_one(words + source).get(10)


@pytest.mark.slow
def test_how_an_executed_rank_ended_is_told(local: Bench):
    workers = local.workers(how="exec")
    with pytest.raises(SupervisionError, match=r"rank 1.*exited with code 3"):
        workers.slice(rank=1).do.call_one("import os\nos._exit(3)").get(10)
    roster_of(workers).kill([0])
    with pytest.raises(SupervisionError, match=r"rank 0.*SIGKILL"):
        workers.slice(rank=0).do.call_one("1").get(10)


def test_what_a_rank_started_dies_with_it(local: Bench, until: Until):
    workers = local.workers({"rank": 1})
    source = "import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session={}).pid"
    child = workers.do.call_one(source.format(False)).get(10)
    assert psutil.pid_exists(child)
    with pytest.raises(SupervisionError):
        workers.do.call_one("import os\nos._exit(0)").get(10)
    until(lambda: not psutil.pid_exists(child))


def test_a_rank_that_ends_at_its_start(local: Bench, how: str, tmp_path: Path):
    (tmp_path / "doom.py").write_text("import os, sys\nprint('doomed', file=sys.stderr)\nos._exit(7)\n")
    mesh = local.begin({"dp": 2}, how, preload=["doom"], path=[*sys.path, str(tmp_path)])
    with pytest.raises(SpawnError, match=r"rank [01] \(dp=[01].*did not come up: exited with code 7\n  doomed"):
        mesh.roster.wait_ready(30)
    mesh.roster.stop(grace=0)
    assert mesh.roster.alive() == []


def test_all_are_waited_for_when_one_ends_while_others_are_being_started(
    local: Bench, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Until
):
    (tmp_path / "doom.py").write_text("import os\nos.environ['RANK'] == '0' and os._exit(7)\n")
    start = Agent._start

    def slowly(agent: Agent, spec: RankSpec, port: int, listen: int) -> None:
        start(agent, spec, port, listen)
        if spec.rank == 0:
            until(lambda: agent._peers[0].is_over)

    monkeypatch.setattr(Agent, "_start", slowly)
    mesh = local.begin({"dp": 2}, how, preload=["doom"], path=[*sys.path, str(tmp_path)])
    assert mesh.roster.alive() == [1]
    mesh.roster.stop(grace=0)
    assert mesh.roster.alive() == []


def test_an_import_that_fails(local: Bench):
    mesh = local.begin(preload=["json", "there_is_no_such_module"])
    text = "did not come up: ModuleNotFoundError: No module named 'there_is_no_such_module'"
    with pytest.raises(SpawnError, match=text):
        mesh.roster.wait_ready(30)


def test_a_folder_that_is_not_there(local: Bench, how: str, tmp_path: Path):
    mesh = local.begin(how=how, cwd=str(tmp_path / "missing"))
    with pytest.raises(SpawnError, match=r"did not come up(.|\n)*No such file or directory.*missing"):
        mesh.roster.wait_ready(30)
    mesh.roster.stop()


def test_a_rank_that_takes_too_long(local: Bench, tmp_path: Path):
    (tmp_path / "slow.py").write_text("import sys, time\nprint('waiting', file=sys.stderr)\ntime.sleep(1000)\n")
    mesh = local.begin({"dp": 2}, preload=["slow"], path=[*sys.path, str(tmp_path)])
    with pytest.raises(SpawnError, match=r"rank 0 \(dp=0(, pid \d+)?\) and 1 more not ready after 0.2 s"):
        mesh.roster.wait_ready(0.2)
    assert set(mesh.roster.stop(grace=0).values()) == {"killed by SIGKILL (signal 9)"}


def test_more_is_sent_than_a_stopped_rank_can_take(local: Bench):
    workers = local.workers({"rank": 1})
    rank = stop(roster_of(workers).states[0].pid)
    futures = [workers.echo.call_one((i, bytes(20_000))) for i in range(300)]
    rank.resume()
    assert [future.get(20)[0] for future in futures] == list(range(300))


def test_ranks_speak_to_each_other_where_no_descriptor_is_left_for_a_link(local: Bench):
    procs = local.up()
    first = procs.slice(rank=0).spawn("first", Worker)
    first.keep.call_one(procs.slice(rank=1).spawn("second", Glutton)).get(10)
    with no_descriptor_left():
        assert first.do.call_one("actor.kept.echo.call_one('heard').get(10)").get(20) == "heard"
    assert first.do.call_one("actor.kept.echo.call_one(bytes(1 << 20)).get(10)").get(20) == bytes(1 << 20)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in /proc")
def test_a_mesh_is_looked_at_and_taken_down_without_a_descriptor_left(local: Bench):
    procs = local.up()
    procs.initialized.get(20)
    roster = roster_of(procs)
    pids = [state.pid for state in roster.states.values()]
    with no_descriptor_left():
        assert roster.look_at_vitals(0.0) == {}
        procs.stop().get(20)
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


def test_output_flows_while_nobody_waits(local: Bench):
    """The loop reads the pipes even while the main thread does something else: else the rank would wait for room."""
    workers = local.workers({"rank": 1})
    done = threading.Event()
    future = workers.do.call_one("line = 'x' * 999\nfor _ in range(8000): print(line)")
    future.add_done_callback(lambda _: done.set())
    assert done.wait(20)
    assert roster_of(workers).logs[0].read().count("\n") == 8000


def test_a_subprocess_of_a_rank_is_heard_before_the_answer(local: Bench):
    workers = local.workers({"rank": 1})
    workers.do.call_one("import os\nprint('py')\nos.system('echo sh; echo err >&2')\nprint('py')").get(10)
    log = roster_of(workers).logs[0]
    assert log.read(stream="stdout") == "py\nsh\npy\n"
    assert log.read(stream="stderr") == "err\n"


@pytest.mark.slow
def test_meshes_that_come_and_go_leave_nothing(local: Bench):
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    def cycle() -> None:
        local.workers().add.call(1).get(10)
        local._meshes.pop().roster.stop()

    for _ in range(3):
        cycle()
    before, threads = descriptors(), threading.active_count()
    size = psutil.Process().memory_info().rss
    for _ in range(50):
        cycle()
    assert descriptors() <= before
    assert threading.active_count() == threads
    assert psutil.Process().memory_info().rss - size < 20 << 20


def test_an_interrupt_while_a_call_goes_out_leaves_nothing_behind(
    local: Bench, monkeypatch: pytest.MonkeyPatch, until: Until
):
    workers = local.workers({"dp": 2})
    agent = roster_of(workers).crew
    assert isinstance(agent, Agent) and agent._pool is not None
    post = Outlet.post

    def interrupted(outlet: Outlet, *args: Any) -> None:
        post(outlet, *args)
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Outlet, "post", interrupted)
        workers.echo.call(bytes(1 << 20))
    assert workers.add.call(1).get(10).values() == [1, 1]
    until(lambda: agent._pool.stats().blocks == 0)  # type: ignore[union-attr]
    assert [list(peer.calls) for peer in agent._peers.values()] == [[], []]


def test_an_interrupt_while_ranks_are_started_leaves_none(
    local: Bench, how: str, monkeypatch: pytest.MonkeyPatch, until: Until
):
    """Also where it comes as a process is made: before anybody knows its number."""
    make = socket.socketpair if how == "fork" else subprocess._fork_exec  # type: ignore[attr-defined]
    module, name = (socket, "socketpair") if how == "fork" else (subprocess, "_fork_exec")
    left = [0, 0, signal.SIGINT, 0, 0, 0, 0]

    def interrupted(*args: Any, **options: Any) -> Any:
        made = make(*args, **options)
        if left and (signum := left.pop(0)):
            signal.raise_signal(signum)
        return made

    local.workers(how=how).add.call(1).get(10)
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, name, interrupted)
        local.begin({"rank": 8}, how)
    assert left, "it ended the start"
    until(lambda: {process.pid for process in psutil.Process().children(recursive=True)} <= before)
    assert local.workers(how=how).add.call(1).get(10).values() == [1, 1]
