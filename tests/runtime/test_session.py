"""The session of a process: made at the first use, ended as a whole, without a trace."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from meshbook.runtime import session
from meshbook.runtime.engines import workers
from meshbook.runtime.engines.inproc import InprocEngine
from meshbook.runtime.engines.workers import WorkersLauncher
from meshbook.runtime.errors import SpawnError, SupervisionError
from meshbook.runtime.mesh import roster_of
from meshbook.runtime.session import Session, spawn_procs, specs_for
from meshbook.runtime.wire.reactor import Reactor
from tests.runtime.actors import Worker

ROOT = str(Path(__file__).parents[2])


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    session.close()
    for thread in threading.enumerate():
        if thread.name.startswith("meshbook-actor"):  # of another test's session: it was told to end, and is about to
            thread.join(10)
    yield
    session.close()


def loops() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("meshbook")]


def test_there_is_one_until_it_is_closed(until: Callable[..., object]):
    first = session.session()
    assert session.session() is first
    assert "meshbook-io" in loops()
    session.close()
    until(lambda: loops() == [])  # an actor's thread was told to end, and is about to
    session.close()
    second = session.session()
    assert second is not first


class Monkey:
    """What gevent's module of this name says after `patch_all`; seen of gevent 26.9."""

    def __init__(self, *patched: str) -> None:
        self.is_module_patched = patched.__contains__


@pytest.mark.parametrize(
    ("patched", "what"),
    [(("threading", "select", "socket", "os"), "sockets"), (("socket",), "sockets"), (("threading", "os"), "threads")],
)
def test_where_gevent_would_let_it_hang_it_says_so(
    monkeypatch: pytest.MonkeyPatch, patched: tuple[str, ...], what: str
) -> None:
    monkeypatch.setitem(sys.modules, "gevent.monkey", Monkey(*patched))
    with pytest.raises(SpawnError, match=f"gevent has patched the {what} of this process"):
        session.session()
    assert loops() == []


@pytest.mark.parametrize("patched", [(), ("threading", "select", "os"), ("select",)])
def test_with_what_else_gevent_patches_it_works(monkeypatch: pytest.MonkeyPatch, patched: tuple[str, ...]) -> None:
    monkeypatch.setitem(sys.modules, "gevent.monkey", Monkey(*patched))
    session.session()
    assert "meshbook-io" in loops()


def test_many_threads_get_the_same():
    found: set[int] = set()
    threads = [threading.Thread(target=lambda: found.add(id(session.session()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1


def test_threads_that_attach_to_the_same_hosts_get_one_engine(monkeypatch: pytest.MonkeyPatch):
    both = threading.Barrier(2)

    class Slow(WorkersLauncher):
        def __init__(self, *args: Any) -> None:
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait(0.3)  # for the other, if it comes here too
            super().__init__(*args)

    monkeypatch.setattr(workers, "WorkersLauncher", Slow)
    here = session.session()

    def attach(_: int) -> object:
        return here.engine(here.use_workers(["inproc://nobody"]))

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(attach, range(2))
    assert one is other is here.engine(here.use_workers(["inproc://nobody"]))


def test_threads_that_are_first_on_this_machine_get_one_engine(monkeypatch: pytest.MonkeyPatch):
    both_make = threading.Barrier(2)

    class Slow(InprocEngine):
        def __init__(self, reactor: Reactor) -> None:
            super().__init__(reactor)
            with contextlib.suppress(threading.BrokenBarrierError):
                both_make.wait(0.05)  # where a second thread makes one, this is when

    monkeypatch.setattr(session, "InprocEngine", Slow)
    begun = session.session()
    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(begun.engine, ["inproc"] * 2)
    assert one is other


def test_engines_by_name():
    one = session.session()
    assert one.engine() is one.engine("local")
    assert one.engine("inproc").name == "inproc"
    with pytest.raises(ValueError, match="no engine 'slurm': local"):
        one.engine("slurm")


def test_closing_takes_all_meshes_down(until: Callable[..., object]):
    meshes = [spawn_procs({"rank": 2}, "inproc") for _ in range(2)]
    workers = [mesh.spawn("workers", Worker) for mesh in meshes]
    assert [mesh.add.call(1).get(10).values() for mesh in workers] == [[1, 1], [1, 1]]
    session.close()
    assert all(mesh.roster.is_stopped for mesh in meshes)
    until(lambda: loops() == [])
    with pytest.raises(SupervisionError):
        workers[0].add.call(1).get(5)


def test_who_presses_stop_as_the_program_ends_sees_no_frames_of_ours(monkeypatch: pytest.MonkeyPatch):
    made = session.session()
    close = made.close

    def pressed() -> None:
        close()
        raise KeyboardInterrupt

    monkeypatch.setattr(made, "close", pressed)
    session._close_at_exit()  # pyright: ignore[reportPrivateUsage] - Python calls it
    assert session.session() is not made
    session.close()


def test_one_mesh_that_cannot_be_stopped_keeps_none_of_the_others(
    monkeypatch: pytest.MonkeyPatch, until: Callable[..., object]
):
    good, bad = (spawn_procs({"rank": 1}, "inproc") for _ in range(2))
    stop = bad.roster.stop

    def fail(grace: float = 2.0) -> dict[int, str]:
        stop(grace)
        raise OSError("cannot")

    monkeypatch.setattr(bad.roster, "stop", fail)
    with pytest.raises(OSError, match="cannot"):
        session.close()
    assert good.roster.is_stopped
    until(lambda: loops() == [])


def test_a_mesh_that_nobody_holds_lives_on_until_the_end():
    spawn_procs({"rank": 1}, "inproc").roster.wait_ready(10)
    gc.collect()
    (roster,) = session.session().root.rosters.values()
    assert roster.alive() == [0]
    assert not roster.is_stopped


def test_a_folder_travels_to_no_rank_of_this_machine():
    with pytest.raises(ValueError, match=r"engine 'inproc' has no hosts to bring /somewhere to: its ranks read it the"):
        spawn_procs({"rank": 1}, "inproc", folder="/somewhere")


@pytest.mark.real
def test_the_whole_with_processes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(session, "ZYGOTE_MODULES", ["meshbook.runtime.ranks.worker"])
    mesh = spawn_procs({"dp": 2}, backend="none", path=[*sys.path, ROOT])
    workers = mesh.spawn("workers", Worker)
    assert workers.add.call(2).get(20).values() == [2, 2]
    session.close()
    assert roster_of(workers).states[0].exit is not None


def test_specs_of_a_mesh(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FROM", "outside")
    specs = specs_for({"dp": 2, "tp": 2}, env={"GREETING": "hello"}, device="cuda", preload=["json"])
    assert [spec.rank for spec in specs] == [0, 1, 2, 3]
    assert [spec.device for spec in specs] == ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]
    assert {(spec.world_size, spec.local_world_size, tuple(spec.axes)) for spec in specs} == {(4, 4, ("dp", "tp"))}
    assert [spec.env["RANK"] for spec in specs] == ["0", "1", "2", "3"]
    assert {(spec.env["FROM"], spec.env["GREETING"]) for spec in specs} == {("outside", "hello")}
    assert {(spec.cwd, spec.path, spec.preload) for spec in specs} == {(os.getcwd(), tuple(sys.path), ("json",))}


def test_ranks_that_share_gpus_take_them_in_turns():
    specs = specs_for({"rank": 5}, device="cuda/2")
    assert [spec.device for spec in specs] == ["cuda:0", "cuda:1", "cuda:0", "cuda:1", "cuda:0"]
    assert {spec.shared_gpus for spec in specs} == {2}
    assert {spec.shared_gpus for spec in specs_for({"rank": 2}, device="cuda")} == {0}


def test_a_working_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(SpawnError, match=r"the working directory of this program was removed: os\.chdir"):
        specs_for({"r": 2})
    assert specs_for({"r": 2}, cwd=str(tmp_path))[1].cwd == str(tmp_path)


def test_more_ranks_than_any_machine_holds_are_refused_at_once():
    with pytest.raises(SpawnError, match=r"^10,000,000 ranks need more memory than this machine has, \d+ GB: ask for"):
        specs_for({"r": 10_000_000})


def test_a_session_of_one_s_own():
    own = Session()
    roster = own.spawn(specs_for({"rank": 1}), "inproc")
    roster.wait_ready(10)
    own.close()
    assert roster.is_stopped
