"""Hosts and their processes: starting, bootstrapping, stopping, and what is said about them."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from meshbook.runtime import (
    ActorError,
    Channel,
    Future,
    HostMesh,
    Shape,
    SupervisionError,
    default_bootstrap_cmd,
    shutdown_context,
    this_host,
    this_proc,
)
from meshbook.runtime.controller import root
from meshbook.runtime.scope import Instance
from meshbook.runtime.session import session
from tests.runtime.actors import Marks, Worker
from tests.runtime.families import Held, Owner
from tests.runtime.troupe import Counter, Courier, Diary, Mortal

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage


def boot() -> None:
    os.environ["MESHBOOK_BOOTED"] = "yes"


async def boot_async() -> None:
    await asyncio.sleep(0)
    os.environ["MESHBOOK_BOOTED"] = "asynchronously"


def boot_badly() -> None:
    raise RuntimeError("no boot for you")


def pressed_in(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Ctrl-C comes as this has been done for the next mesh."""
    who = Instance if method == "own" else session().root._engine(root.default_engine[-1])
    done = getattr(who, method)

    def do(*args: Any, **kwargs: Any) -> Any:
        result = done(*args, **kwargs)
        signal.raise_signal(signal.SIGINT)
        return result

    monkeypatch.setattr(who, method, do)


def running() -> set[int]:
    return {process.pid for process in psutil.Process().children(recursive=True)}


@pytest.mark.parametrize("method", ["prepare", "spawn", "own"])
def test_processes_that_ctrl_c_hits_as_they_are_made_are_not_left(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, until: Callable[..., Any], method: str
) -> None:
    stage.shared(r=2)
    before = set(session().root.rosters), running()
    pressed_in(monkeypatch, method)
    with pytest.raises(KeyboardInterrupt):
        this_host().spawn_procs({"lost": 2})
    until(lambda: (set(session().root.rosters), running()) == before)


class TestHosts:
    def test_this_host_has_no_axes(self) -> None:
        host = this_host()
        assert (host.sizes, len(host), host, repr(host)) == ({}, 1, this_host(), "<HostMesh {}>")
        assert host.initialized.get(10) is True
        assert host.region.as_shape() == Shape.unity()
        assert host.is_fake_in_process is False
        assert pickle.loads(pickle.dumps(host)) == host
        assert host == this_host()
        assert hash(host) == hash(this_host())

    def test_its_axes_come_first(self, stage: Stage) -> None:
        hosts = HostMesh(Shape.row_major({"hosts": 2}))
        procs = stage.owned(hosts.spawn_procs(per_host={"gpus": 2}))
        assert procs.sizes == {"hosts": 2, "gpus": 2}
        with pytest.raises(ValueError, match="overlap with host labels"):
            hosts.spawn_procs({"hosts": 2})
        assert stage.procs().sizes == {}
        assert stage.procs(name="named").spawn("c", Counter).add.call_one(1).get(10) == 1

    @pytest.mark.parametrize(
        ("options", "kind", "text"),
        [
            ({"proc_bind": [{}]}, ValueError, r"proc_bind length \(1\) must equal .* \(2\)"),
            ({"proc_bind": [{"cpu": "1"}, {}]}, ValueError, "unknown key 'cpu': known are cpunodebind, cpus"),
            ({"proc_bind": [{"cpus": "a"}, {}]}, ValueError, "proc_bind has cpus='a': it is a list of numbers"),
            ({"bootstrap": "boot"}, TypeError, "bootstrap must be a function"),
            ({"bootstrap_command": "python"}, TypeError, "what default_bootstrap_cmd.. gives, .* not 'python'"),
            ({"bootstrap_command": lambda point: point}, TypeError, "what default_bootstrap_cmd.. gives"),
            ({"per_host": {"r": 0}}, ValueError, "axis 'r' has size 0; an axis has at least 1 rank"),
            ({"per_host": {"r": -1}}, ValueError, "axis 'r' has size -1"),
            ({"per_host": {"r": 2.0}}, TypeError, "axis 'r' has size 2.0: a size is an int"),
            ({"per_host": {"r": None}}, TypeError, "axis 'r' has size None: a size is an int"),
            ({"per_host": {2: 2}}, TypeError, "the name of an axis is a str, not 2"),
            ({"per_host": 2}, TypeError, "per_host is a dict of axes and sizes, such as {'gpus': 2}, not 2"),
            ({"per_host": "gpus"}, TypeError, "per_host is a dict of axes and sizes"),
            ({"name": 3}, TypeError, "the name of processes is a str, not 3"),
        ],
    )
    def test_mistakes(self, stage: Stage, options: dict[str, Any], kind: type[Exception], text: str) -> None:
        with pytest.raises(kind, match=text) as caught:
            this_host().spawn_procs(**{"per_host": {"r": 2}, **options})
        assert "\n" not in str(caught.value)

    def test_sizes_are_whole_numbers_of_any_kind(self, stage: Stage) -> None:
        import numpy as np

        procs = stage.procs({"a": np.int64(1), "b": True})
        assert procs.spawn("c", Counter).add.call(1).get(10).values() == [1]
        assert (repr(procs.extent), procs.sizes) == ("{a: 1, b: 1}", {"a": 1, "b": 1})

    def test_what_other_engines_can_do_is_told(self, stage: Stage) -> None:
        for host in (this_host(), pickle.loads(pickle.dumps(this_host()))):
            with pytest.raises(RuntimeError, match="no workspace to bring up to date"):
                asyncio.run(host.sync_workspace("workspace"))

    def test_the_python_is_the_program_s_own(self, stage: Stage) -> None:
        hosts = this_host().with_python_executable(python_executable=sys.executable)
        assert stage.owned(hosts.spawn_procs({"r": 1})).sizes == {"r": 1}
        assert hosts == HostMesh(Shape.unity())

    def test_shut_down_is_for_good(self, stage: Stage) -> None:
        host = HostMesh(Shape.unity())
        procs = host.spawn_procs({"r": 1})
        counters = procs.spawn("c", Counter)
        assert counters.add.call(1).get(10).values() == [1]
        with pytest.raises(RuntimeError, match="a reference instead of owned"):
            pickle.loads(pickle.dumps(host)).shutdown()
        host.shutdown().get(10)
        for again in (host.shutdown, host.spawn_procs):
            with pytest.raises(RuntimeError, match="HostMesh has already been shut down"):
                again()
        with pytest.raises(RuntimeError, match="already been stopped"):
            procs.spawn("c", Counter)

    def test_stop_ends_the_processes_and_spares_the_host(self, stage: Stage) -> None:
        host = HostMesh(Shape.unity())
        first = host.spawn_procs({"r": 1})
        host.stop().get(10)
        with pytest.raises(RuntimeError, match="already been stopped"):
            first.spawn("c", Counter)
        host.spawn_procs({"r": 1}).stop().get(10)
        host.shutdown().get(10)
        with pytest.raises(RuntimeError, match="HostMesh has already been shut down"):
            host.stop()

    def test_a_slice_stops_nothing(self, stage: Stage) -> None:
        host = HostMesh(Shape.unity())
        procs = host.spawn_procs({"r": 1})
        for part in (host.flatten("h"), pickle.loads(pickle.dumps(host))):
            with pytest.raises(RuntimeError, match="cannot stop `HostMesh` that is a reference instead of owned"):
                part.stop()
        assert procs.spawn("c", Counter).add.call(1).get(10).values() == [1]
        host.stop().get(10)

    def test_a_with_block_shuts_down(self, stage: Stage) -> None:
        async def main() -> HostMesh:
            async with HostMesh(Shape.unity()) as host:
                procs = host.spawn_procs({"r": 1})
                assert await procs.initialized is True
            return host

        with pytest.raises(RuntimeError, match="already been shut down"):
            asyncio.run(main()).spawn_procs()

    def test_the_loop_goes_on_while_a_with_block_shuts_down(self, stage: Stage, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "gate")
        port, told = Channel[str].open()
        ended_before: list[bool] = []

        async def main() -> None:
            async with HostMesh(Shape.unity()) as host:
                held = host.spawn_procs({"r": 1}).spawn("held", Held, port, str(tmp_path / "gate"), False)
                call = held.hold.call()
                assert await told.recv() == "waits"
                asyncio.get_running_loop().call_soon(go_on, call)

        def go_on(call: Future[Any]) -> None:
            ended_before.append(call.done())
            if not call.done():  # else nobody is at the gate
                (tmp_path / "gate").open("w").close()

        asyncio.run(main())
        assert ended_before == [False]


class TestProcs:
    def test_initialized_is_true(self, stage: Stage) -> None:
        procs = stage.procs({"r": 2})
        assert procs.initialized.get(20) is True
        assert procs.slice(r=1).initialized.get(10) is True
        assert procs.slice(r=1).host_mesh == this_host()
        with pytest.raises(NotImplementedError, match=r"yet supported for non-singleton .*: this one has 2"):
            _ = procs.host_mesh

    def test_stop(self, stage: Stage) -> None:
        procs = stage.procs({"r": 2})
        counters = procs.spawn("c", Counter)
        assert counters.add.call(1).get(10).values() == [1, 1]
        with pytest.raises(ValueError, match="ProcMesh is not owned; must be stopped by an owner"):
            procs.slice(r=0).stop()
        with pytest.raises(ValueError, match="must be stopped by an owner"):
            pickle.loads(pickle.dumps(procs)).stop()
        with pytest.raises(ValueError, match="must be stopped by an owner: the program's own process ends with it"):
            this_proc().stop()
        procs.stop().get(10)
        procs.stop().get(10)
        with pytest.raises(RuntimeError, match="`ProcMesh` has already been stopped"):
            procs.spawn("c", Counter)
        for call in (counters.add.call, counters.slice(r=0).add.call_one, counters.add.choose):
            with pytest.raises(SupervisionError, match="has status: stopped: stopped by client"):
                call(1).get(10)
        counters.stop().get(10)
        assert "stopped" in repr(procs)

    def test_the_reason_is_told(self, stage: Stage) -> None:
        procs = stage.procs({"r": 1})
        counter = procs.spawn("c", Counter)
        procs.stop("for the night").get(10)
        with pytest.raises(SupervisionError, match="stopped: for the night"):
            counter.add.call_one(1).get(10)

    def test_what_actors_were_sent_before_is_done(self, stage: Stage, tmp_path: Path) -> None:
        for mesh in range(4):
            procs = stage.procs({"r": 2})
            marks = procs.spawn("m", Marks, tmp_path)
            for _ in range(3):  # from the second call on its own thread reads what comes, when it has nothing to do
                marks.count.call().get(20)
            for number in range(5):
                marks.put.broadcast(f"{mesh}-{number}")
            procs.stop().get(10)
        assert len([*tmp_path.iterdir()]) == 4 * 2 * 5

    def test_a_with_block_stops(self, stage: Stage) -> None:
        async def main() -> Any:
            async with this_host().spawn_procs({"r": 2}) as procs:
                counters = procs.spawn("c", Counter)
                assert (await counters.add.call(1)).values() == [1, 1]
            return procs

        assert "stopped" in repr(asyncio.run(main()))
        with this_host().spawn_procs({"r": 1}) as procs:
            assert procs.spawn("c", Counter).add.call_one(1).get(10) == 1
        procs.stop().get(10)

    def test_actors_have_no_stop_on_slices(self, stage: Stage) -> None:
        counters = stage.spawn(Counter)
        with pytest.raises(NotImplementedError, match="requires an owned ActorMesh"):
            counters.slice(r=0).stop()

    def test_an_actor_starts_processes_and_stops_them(self, stage: Stage) -> None:
        owner = stage.one(Owner)
        kids = owner.adopt_procs.call_one(Counter, 5).get(20)
        assert kids.sizes == {"k": 2}
        assert kids.add.call(1).get(10).values() == [6, 6]
        assert stage.one(Courier).total.call_one(kids).get(10) == 14
        owner.dismiss.call_one().get(20)
        with pytest.raises(SupervisionError):
            kids.add.call(1).get(10)

    def test_logging_options_are_checked(self, stage: Stage) -> None:
        procs = stage.shared(r=2)
        with pytest.raises(ValueError, match="Invalid logging level: 256"):
            asyncio.run(procs.logging_option(level=256))
        with pytest.raises(RuntimeError, match="cannot set aggregate window without streaming to client"):
            asyncio.run(procs.logging_option(aggregate_window_sec=1))

    def test_a_dropped_reference_stops_nothing(self, stage: Stage) -> None:
        procs = stage.procs({"r": 1})
        counter = procs.spawn("c", Counter)
        del procs
        assert counter.add.call_one(1).get(10) == 1


class TestBootstrap:
    @pytest.mark.parametrize(("bootstrap", "word"), [(boot, "yes"), (boot_async, "asynchronously")])
    def test_it_runs_before_any_actor(self, process_stage: Stage, bootstrap: Any, word: str) -> None:
        procs = process_stage.procs({"r": 2}, bootstrap=bootstrap)
        mortals = procs.spawn("m", Mortal)
        assert mortals.environ.call("MESHBOOK_BOOTED").get(20).values() == [word, word]
        assert procs.initialized.get(10) is True
        assert "MESHBOOK_BOOTED" not in os.environ

    @pytest.mark.parametrize("bootstrap", [None, boot, boot_async])
    def test_a_command_sets_the_environment_before_it(
        self, process_stage: Stage, monkeypatch: pytest.MonkeyPatch, bootstrap: Any
    ) -> None:
        monkeypatch.setenv("MESHBOOK_TAKEN", "away")
        command = default_bootstrap_cmd().with_env({"MESHBOOK_TAKEN": None})
        procs = process_stage.procs(
            {"a": 1, "r": 2},
            bootstrap=bootstrap,
            bootstrap_command=lambda point: command.with_env({"MESHBOOK_R": f"{point['r']} of {point.size('r')}"}),
        )
        mortals = procs.spawn("m", Mortal)
        assert mortals.environ.call("MESHBOOK_R").get(20).values() == ["0 of 2", "1 of 2"]
        assert mortals.environ.call("MESHBOOK_TAKEN").get(20).values() == [None, None]
        assert all(mortals.environ.call("MESHBOOK_BOOTED").get(20).values()) == (bootstrap is not None)
        one_for_all = process_stage.procs(bootstrap_command=command.with_env({"MESHBOOK_R": "all"}))
        assert one_for_all.spawn("m", Mortal).environ.call_one("MESHBOOK_R").get(20) == "all"

    @pytest.mark.slow
    @pytest.mark.real
    def test_a_command_sets_what_a_process_reads_as_it_begins(
        self, process_stage: Stage, leaks: Any, tmp_path: Path
    ) -> None:
        (tmp_path / "only_there.py").write_text("value = 34")
        env = {"PYTHONHASHSEED": "0", "TZ": "Asia/Tokyo", "PYTHONOPTIMIZE": "1", "PYTHONPATH": str(tmp_path)}
        procs = process_stage.procs({"r": 2}, bootstrap_command=default_bootstrap_cmd().with_env(env))
        source = "import only_there, time\n(hash('abc'), time.tzname[0], __debug__, only_there.value)"
        line = [sys.executable, "-c", "print(hash('abc'))"]
        number = int(subprocess.run(line, env=os.environ | env, capture_output=True, check=True).stdout)
        assert procs.spawn("w", Worker).do.call(source).get(30).values() == [(number, "JST", False, 34)] * 2
        leaks.allow_what_stands()  # such ranks have a zygote of their own

    def test_processes_find_modules_in_a_folder_that_the_program_has_named_for_them(
        self, process_stage: Stage, leaks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "only_there.py").write_text("value = 34")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
        worker = process_stage.procs({"r": 1}).spawn("w", Worker)
        assert worker.do.call_one("import only_there\nonly_there.value").get(20) == 34
        leaks.allow_what_stands()

    def test_one_that_raises_is_told(self, stage: Stage) -> None:
        procs = stage.procs({"r": 2}, bootstrap=boot_badly)
        with pytest.raises(ActorError, match="no boot for you"):
            procs.initialized.get(20)
        with pytest.raises(ActorError, match="no boot for you"):
            procs.spawn("c", Counter).add.call(1).get(10)


class TestProcesses:
    def test_the_client_is_a_process_too(self, process_stage: Stage) -> None:
        mine = process_stage.owned(this_proc().spawn("mine", Diary))
        assert mine.pid.call_one().get(10) == os.getpid()
        theirs = process_stage.spawn(Diary).pid.call().get(10).values()
        assert len({*theirs, os.getpid()}) == 3

    def test_stopping_leaves_no_process(self, process_stage: Stage) -> None:
        procs = process_stage.procs({"r": 2})
        pids = procs.spawn("m", Mortal).pid.call().get(10).values()
        assert all(map(psutil.pid_exists, pids))
        procs.stop().get(10)
        assert not any(map(psutil.pid_exists, pids))

    def test_of_a_mesh_that_was_dead_when_it_was_stopped_nothing_is_kept(
        self, process_stage: Stage, until: Any
    ) -> None:
        procs = process_stage.procs({"r": 2})
        procs.initialized.get(30)
        procs.roster.kill([0, 1])
        until(lambda: not procs.roster.alive())
        assert procs.roster.mesh in session().root.rosters
        procs.stop().get(10)
        assert procs.roster.mesh not in session().root.rosters

    def test_the_end_of_the_interpreter_is_silent(self, process_stage: Stage, tmp_path: Path) -> None:
        script = tmp_path / "script.py"
        script.write_text(QUIET)
        ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=40)
        assert (ended.returncode, ended.stderr) == (0, "")
        pids = [int(pid) for pid in ended.stdout.split()]
        assert len(pids) == 3
        assert not any(map(psutil.pid_exists, pids))


QUIET = """
import asyncio, os
from meshbook.runtime import Actor, endpoint, session, this_host
session.ZYGOTE_MODULES = ["meshbook.runtime.ranks.worker"]

class A(Actor):
    @endpoint
    def pid(self):
        return os.getpid()

class B(Actor):
    @endpoint
    async def pid(self):
        await asyncio.sleep(100)

procs = this_host().spawn_procs({"r": 2})
b = procs.spawn("b", B)
b.pid.call()
print(os.getpid(), *procs.spawn("a", A).pid.call().get(20).values(), flush=True)
"""


def test_the_context_may_be_shut_down_and_begun_anew(process_stage: Stage, leaks: Any) -> None:
    counter = process_stage.procs({"r": 1}).spawn("c", Counter)
    assert counter.add.call_one(1).get(10) == 1
    asyncio.run(_shut_down())
    with pytest.raises(SupervisionError):
        counter.add.call_one(1).get(10)
    process_stage.forget()


def test_a_reference_to_what_was_shut_down_is_refused_at_once(process_stage: Stage) -> None:
    kept = process_stage.procs({"r": 1}).spawn("c", Counter)
    kept.initialized.get(30)
    text = pickle.dumps(kept)
    shutdown_context().get(10)
    process_stage.forget()
    courier = process_stage.procs({"r": 1}).spawn("courier", Courier)
    why = "it belongs to another program, or to what was shut down in this one: spawn it again"
    with pytest.raises(SupervisionError, match=why):
        pickle.loads(text).add.call_one(1).get(10)
    with pytest.raises(SupervisionError, match=why):
        courier.total.call_one(pickle.loads(text)).get(10)
    assert courier.total.call_one(process_stage.procs({"r": 1}).spawn("new", Counter)).get(10) == 1
    shutdown_context().get(10)
    process_stage.forget()


async def _shut_down() -> None:
    await shutdown_context()
