"""Where real ranks are: those that answer, those that hang with the GIL held or are stopped, the idle and the dead."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from meshbook.kernel.mesh import Mesh
from meshbook.kernel.waiting.look import look
from meshbook.kernel.waiting.report import StackReport
from meshbook.kernel.waiting.stacks import RankStack
from meshbook.runtime import session as sessions
from meshbook.runtime.engines import spy
from meshbook.runtime.mesh import ProcMesh
from meshbook.runtime.ranks import dumps
from tests.kernel.cells import until_at
from tests.kernel.sleepers import Async, Sync

pytestmark = [pytest.mark.real, pytest.mark.slow]

needs_spy = pytest.mark.skipif(spy.program() is None, reason="py-spy is not installed")

the_agent_looks = pytest.mark.differs(
    "hosts", "ranks that do not answer are looked at by the agent of their host: py-spy is to be installed there"
)

HOLDS_GIL = "import re\nre.match('(a+)+$', 'a' * 60 + 'b')"
"""Runs for hours, and no signal ends it."""


@pytest.fixture
def new_mesh(engine: str) -> Iterator[Callable[..., Mesh]]:
    meshes: list[Mesh] = []

    def create(size: int = 1, **options: object) -> Mesh:
        settings = {"path": sys.path, "backend": "none"} | options
        meshes.append(Mesh.up("m", {"rank": size}, engine=engine, **settings))  # type: ignore[arg-type]
        return meshes[-1]

    yield create
    for mesh in meshes:
        mesh.down(grace=0)


def until(look: Callable[[], StackReport], holds: Callable[[Sequence[RankStack]], bool]) -> StackReport:
    """Look again and again until it is as it should be."""
    deadline = time.monotonic() + 30
    while not holds((report := look()).stacks):
        assert time.monotonic() < deadline, f"it did not come to this, but to:\n{report}"
    return report


def lines(stack: RankStack) -> list[str]:
    return [frame.source for frame in stack.frames if frame.is_user]


@pytest.mark.parametrize("link", ["pair", "zmq"])
def test_ranks_in_different_places_are_told_apart(new_mesh: Callable[..., Mesh], link: str) -> None:
    mesh = new_mesh(4, link=link)
    source = "import time\ndef f():\n  if rank == 0:\n    while True: pass\n  time.sleep(60)\nif rank < 3:\n  f()"
    mesh.run(source, first_line=2)

    def is_there(stacks: Sequence[RankStack]) -> bool:
        where = [lines(stack)[-1:] for stack in stacks]
        is_right = where == [["while True: pass"], ["time.sleep(60)"], ["time.sleep(60)"], []]
        is_done = stacks[3].state == "idle" and not stacks[3].frames  # it was looked at before its state was
        return is_right and is_done and not any(stack.how for stack in stacks)

    report = until(mesh.stacks, is_there)
    (trunk,) = report.tree
    assert [(frame.file, frame.line, frame.name) for frame in trunk.frames] == [("cell 1", 8, "<module>")]
    assert [branch.ranks for branch in trunk.branches] == [(0,), (1, 2)]
    assert repr(report).splitlines()[-1] == "rank 3  idle"


def test_a_script_that_a_cell_runs_is_said_with_its_line(new_mesh: Callable[..., Mesh], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time\n\ntime.sleep(60)\n")
    mesh = new_mesh()
    mesh.run(f"%run {tmp_path}/train.py")
    until_at(mesh, "cell 1 line 1 > train.py line 3", [0])


def test_a_rank_in_a_collective_says_which_and_where(new_mesh: Callable[..., Mesh]) -> None:
    mesh = new_mesh(2, backend="gloo")
    mesh.run("import torch, torch.distributed as dist\nif rank == 0:\n  dist.all_reduce(torch.ones(1))")
    report = until(mesh.stacks, lambda stacks: bool(stacks[0].waiting) and stacks[1].state == "idle")
    assert report.stacks[0].waiting == "all_reduce"
    assert lines(report.stacks[0]) == ["dist.all_reduce(torch.ones(1))"]
    assert "→ waiting in all_reduce for " in repr(report)


def test_an_awaiting_cell_is_where_its_coroutines_are(new_mesh: Callable[..., Mesh]) -> None:
    mesh = new_mesh()
    mesh.run("import asyncio\nasync def nap():\n  await asyncio.sleep(60)\nawait nap()")
    report = until(mesh.stacks, lambda stacks: lines(stacks[0]) == ["await nap()", "await asyncio.sleep(60)"])
    assert [(frame.file, frame.line) for frame in report.stacks[0].frames[:2]] == [("cell 1", 4), ("cell 1", 3)]


def test_a_rank_whose_gil_is_held_is_seen_by_a_signal_and_lives(new_mesh: Callable[..., Mesh]) -> None:
    mesh = new_mesh(2)
    mesh.run(HOLDS_GIL, [0], first_line=3)
    report = until(mesh.stacks, lambda stacks: stacks[0].how == "signal" and len(stacks[0].frames) == 2)
    stack, other = report.stacks
    assert stack.frames[0].file == "cell 1"
    assert (stack.frames[0].line, lines(stack)) == (4, [HOLDS_GIL.splitlines()[1]])
    assert other.state == "idle"
    assert "seen by signal" in repr(report)
    assert mesh.states()[0] == "busy"


@the_agent_looks
def test_a_look_at_ranks_that_hang_takes_no_longer_than_it_must(
    new_mesh: Callable[..., Mesh], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spy, "program", lambda: None)
    mesh = new_mesh(3)
    mesh.run(HOLDS_GIL)
    have_told: Callable[[Sequence[RankStack]], bool] = lambda stacks: all(  # noqa: E731
        stack.how == "signal" and len(stack.frames) == 2 for stack in stacks
    )
    report = until(mesh.stacks, have_told)
    assert [len(branch.ranks) for branch in report.tree] == [3]
    started = time.monotonic()
    mesh.stacks()
    assert time.monotonic() - started < 1.5


def test_a_stopped_rank_is_said_to_be_stopped(new_mesh: Callable[..., Mesh]) -> None:
    mesh = new_mesh()
    pid = mesh.roster.states[0].pid
    os.kill(pid, signal.SIGSTOP)
    report = until(mesh.stacks, lambda stacks: bool(stacks[0].trouble))
    assert repr(report).endswith(f"✗ rank 0  stopped (SIGSTOP): `kill -CONT {pid}` lets it go on")
    os.kill(pid, signal.SIGCONT)
    until(mesh.stacks, lambda stacks: not stacks[0].trouble and stacks[0].state == "idle")


def test_the_dead_are_said_to_be_dead(new_mesh: Callable[..., Mesh]) -> None:
    mesh = new_mesh(2)
    mesh.roster.kill([1])
    report = until(mesh.stacks, lambda stacks: stacks[1].state == "dead")
    assert repr(report).splitlines()[1:] == ["✗ rank 1  dead: killed by SIGKILL (signal 9)", "rank 0  idle"]
    mesh.down()
    assert [stack.state for stack in mesh.stacks().stacks] == ["dead", "dead"]
    assert repr(mesh.profile()).startswith("no rank lives\nnobody works")
    for seconds in (-1.0, 0, float("nan"), [0, 1]):
        with pytest.raises(ValueError, match="some seconds, such as 3, not for"):
            mesh.profile(seconds)  # type: ignore[arg-type]


def test_a_rank_that_starts_says_what_it_imports(engine: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    (tmp_path / "slow_module.py").write_text(f"open({str(gate)!r}).read()\n")
    procs = sessions.spawn_procs(
        {"rank": 1}, engine, "auto", path=[str(tmp_path), *sys.path], preload=("slow_module",), backend="none"
    )
    try:
        report = until(lambda: look(procs.roster), lambda stacks: any("open(" in line for line in lines(stacks[0])))
        assert report.stacks[0].state == "starting"
        assert repr(report).endswith("→ starting")
    finally:
        gate.open("w").close()
        procs.roster.wait_ready(30)
        procs.stop().get(10)


@pytest.fixture
def procs(engine: str) -> Iterator[ProcMesh]:
    """A mesh without the actor that runs cells."""
    procs = sessions.spawn_procs({"rank": 3}, engine)
    procs.roster.wait_ready(30)
    yield procs
    procs.roster.stop(grace=0)


def test_actors_on_threads_of_their_own_are_told_too(procs: ProcMesh) -> None:
    sync, awaiting = procs.spawn("sync", Sync), procs.spawn("async", Async)
    sync.initialized.get(30)
    awaiting.initialized.get(30)
    assert repr(look(procs.roster)).splitlines()[1:] == ["ranks 0-2  idle"]
    sync.slice(rank=0).nap.broadcast()
    awaiting.slice(rank=1).nap.broadcast()
    naps = [["time.sleep(60)"], ["await asyncio.sleep(60)"], []]

    def are_there(stacks: Sequence[RankStack]) -> bool:
        return [[frame.source for frame in stack.frames][:1] for stack in stacks] == naps

    report = until(lambda: look(procs.roster), are_there)
    assert [stack.thread for stack in report.stacks] == ["actor-sync", "actor-async", ""]


@pytest.mark.parametrize("has_spy", [pytest.param(False, marks=the_agent_looks), pytest.param(True, marks=needs_spy)])
def test_an_actor_that_holds_the_gil(procs: ProcMesh, has_spy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_spy:
        monkeypatch.setattr(spy, "program", lambda: None)
    sync = procs.spawn("sync", Sync)
    sync.initialized.get(30)
    sync.slice(rank=0).hold.broadcast()
    report = until(lambda: look(procs.roster), lambda stacks: bool(stacks[0].how))
    stack = report.stacks[0]
    if has_spy:
        assert (stack.how, stack.thread) == ("py-spy", "actor-sync")
        assert stack.frames[0].name.endswith("hold")
    else:
        assert "its main thread is at rest: C code of another thread may hold the GIL" in repr(report)
    assert [each.state for each in report.stacks[1:]] == ["idle", "idle"]


def test_ranks_that_are_threads_answer_too() -> None:
    with Mesh.up("m", {"rank": 2}, engine="inproc") as mesh:
        run = mesh.run("while True: pass", [1])
        report = until(mesh.stacks, lambda stacks: lines(stacks[1]) == ["while True: pass"])
        assert report.stacks[0].frames == ()
        mesh.interrupt([1])
        run.finished.get(30)


@needs_spy
def test_native_frames_come_from_py_spy(new_mesh: Callable[..., Mesh]) -> None:
    mesh = new_mesh()
    mesh.run(HOLDS_GIL)
    until(mesh.stacks, lambda stacks: stacks[0].how == "signal")
    (stack,) = mesh.stacks(native=True).stacks
    assert stack.how == "py-spy"
    assert any(frame.name.startswith("sre_") for frame in stack.frames)


@the_agent_looks
def test_without_py_spy_native_says_how_to_get_it(
    new_mesh: Callable[..., Mesh], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spy, "program", lambda: None)
    mesh = new_mesh(2)
    mesh.run(HOLDS_GIL, [1])
    until(mesh.stacks, lambda stacks: stacks[1].how == "signal")
    report = until(lambda: mesh.stacks(native=True), lambda stacks: [s.how for s in stacks] == ["", "signal"])
    assert report.note == f"--native: {spy.MISSING}"


@the_agent_looks
def test_the_last_rung_says_that_nothing_was_reached(
    new_mesh: Callable[..., Mesh], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spy, "program", lambda: None)
    monkeypatch.setattr(dumps, "take", lambda pids, timeout: {})
    mesh = new_mesh()
    mesh.run(HOLDS_GIL)
    report = until(mesh.stacks, lambda stacks: bool(stacks[0].trouble))
    assert repr(report).endswith(f"✗ rank 0  no answer to a signal either; {spy.MISSING}")
