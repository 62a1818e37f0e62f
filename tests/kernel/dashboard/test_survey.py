"""The facts of real ranks: what they do, what they cost, how they end."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from meshbook.kernel.dashboard.sentence import sentence
from meshbook.kernel.dashboard.survey import MeshWatch
from meshbook.kernel.mesh import Mesh
from tests.kernel.cells import lose, ran

pytestmark = [pytest.mark.slow, pytest.mark.real]

BEHIND = """
import time, torch, torch.distributed as dist
if rank == 1:
    while not go: time.sleep(0.01)
dist.all_reduce(torch.ones(1))
"""


@pytest.fixture
def mesh(engine: str) -> Iterator[Mesh]:
    with Mesh.up("m", {"dp": 3}, engine=engine, path=sys.path) as mesh:
        yield mesh


@pytest.fixture
def watch(mesh: Mesh) -> Iterator[MeshWatch]:
    watch = MeshWatch(mesh)
    watch.refresh(time.monotonic())
    yield watch
    watch.close()


def until(watch: MeshWatch, is_so: Callable[[], bool], seconds: float = 10.0) -> None:
    """Look until it is so, often: of what /proc tells there is no word when it changes."""
    deadline = time.monotonic() + seconds
    watch.refresh(time.monotonic())
    while not is_so():
        assert time.monotonic() < deadline, watch.facts
        time.sleep(0.02)
        watch.refresh(time.monotonic())


def states(watch: MeshWatch) -> list[str]:
    return [each.state for each in watch.facts]


def test_idle_ranks_cost_memory_and_are_not_asked(mesh: Mesh, watch: MeshWatch) -> None:
    assert states(watch) == ["idle"] * 3
    until(watch, lambda: all(each.memory and each.memory > 10 << 20 for each in watch.facts))
    assert [each.pid for each in watch.facts] == [mesh.roster.states[rank].pid for rank in range(3)]


def test_a_rank_that_loops_has_a_core_and_a_line(mesh: Mesh, watch: MeshWatch) -> None:
    run = mesh.run("x = 1\nwhile True: x += 1", [2])
    until(watch, lambda: watch.facts[2].place == "cell 1 line 2" and (watch.facts[2].cpu or 0) > 0.1)
    assert watch.facts[2].cell == "cell 1" and watch.facts[2].run == run.call
    assert states(watch) == ["idle", "idle", "busy"]
    mesh.interrupt([2], run.call)
    run.finished.get(10)


def test_who_waits_in_a_collective_and_who_is_behind(mesh: Mesh, watch: MeshWatch) -> None:
    ran(mesh, "go = False")
    run = mesh.run(BEHIND)
    until(watch, lambda: states(watch) == ["waiting", "busy", "waiting"])
    assert {watch.facts[rank].waiting for rank in (0, 2)} == {"all_reduce"}
    said = str(sentence(watch.facts, time.monotonic() + 5))
    assert said.startswith("rank 1 is ") and "all others wait in all_reduce, cell 2 line 5" in said
    mesh.unstick()
    run.finished.get(20)
    until(watch, lambda: "waiting" not in states(watch))


SLOW = """
import time, torch.distributed as dist
while True:
    if rank == 1: time.sleep(0.05)
    dist.barrier()
"""


def test_a_slow_rank_is_named(mesh: Mesh, watch: MeshWatch) -> None:
    run = mesh.run(SLOW)
    until(watch, lambda: bool(watch.late), 30.0)
    said = str(sentence(watch.facts, time.monotonic(), watch.finding, watch.late))
    assert said.startswith("rank 1 comes ") and " late to barrier at cell 1, line 5: " in said
    mesh.interrupt([0, 1, 2], run.call)
    run.finished.get(20)
    until(watch, lambda: states(watch) == ["idle"] * 3)
    assert not watch.late


def test_a_death_and_a_stop_are_told_with_their_signal(mesh: Mesh, watch: MeshWatch) -> None:
    os.kill(mesh.roster.states[0].pid, signal.SIGSTOP)
    until(watch, lambda: states(watch)[0] == "stopped")
    assert watch.facts[0].why == "stopped (SIGSTOP)"
    os.kill(mesh.roster.states[0].pid, signal.SIGCONT)
    lose(mesh, [1])
    until(watch, lambda: states(watch) == ["idle", "dead", "idle"])
    assert str(sentence(watch.facts, time.monotonic())).startswith("rank 1 died of SIGKILL 0 s ago")
    assert watch.facts[1].memory is None


def test_a_failed_rank_is_so_until_it_does_well(mesh: Mesh, watch: MeshWatch) -> None:
    mesh.last_failed = (1,)
    watch.refresh(time.monotonic())
    assert states(watch) == ["idle", "failed", "idle"]


def test_a_rank_in_the_debugger_is_so_and_stands_at_its_line(mesh: Mesh, watch: MeshWatch) -> None:
    run = mesh.run("x = 1\nbreakpoint()\nx = 2", [0])
    until(watch, lambda: states(watch) == ["debug", "idle", "idle"])
    assert "cell 1 line" in watch.facts[0].place
    assert str(sentence(watch.facts, time.monotonic())).startswith("rank 0 is in the debugger")
    mesh.desk.leave()
    run.finished.get(10)


def test_what_ranks_report_is_among_the_facts(mesh: Mesh, watch: MeshWatch) -> None:
    watch.metric = "loss"
    ran(mesh, "import meshbook\nfor i in meshbook.progress(range(4), desc='step'): meshbook.log(loss=rank + i)")
    mesh.metrics()
    watch.refresh(time.monotonic())
    assert [each.metric for each in watch.facts] == [3.0, 4.0, 5.0]
    assert {(each.loop, each.done, each.total) for each in watch.facts} == {("step", 4, 4)}


def test_a_resized_mesh_has_as_many_facts(mesh: Mesh, watch: MeshWatch) -> None:
    mesh.resize({"dp": 2})
    watch.refresh(time.monotonic())
    assert states(watch) == ["idle", "idle"] and watch.axes == {"dp": 2}


def test_a_mesh_that_shrinks_in_the_middle_of_a_look_is_seen(
    mesh: Mesh, watch: MeshWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = mesh.run("while True: pass", [2])
    until(watch, lambda: states(watch)[2] == "busy")
    mesh.interrupt([2], run.call)
    run.finished.get(10)

    def shrink(now: float) -> None:
        monkeypatch.undo()
        mesh.resize({"dp": 2})

    monkeypatch.setattr(mesh.roster, "look_at_vitals", shrink)
    watch.refresh(time.monotonic() + 60)
    watch.refresh(time.monotonic())
    assert states(watch) == ["idle", "idle"]


def test_who_is_told_of_changes_is_so_until_it_is_closed(mesh: Mesh) -> None:
    heard: list[int] = []
    watch, before = MeshWatch(mesh), list(mesh.roster.on_change)
    watch.tell(heard.append)
    ran(mesh, "None")
    assert set(heard) == {0, 1, 2}
    watch.close()
    assert mesh.roster.on_change == before


def test_it_is_over_when_the_mesh_is_down(mesh: Mesh, watch: MeshWatch) -> None:
    mesh.down()
    assert watch.is_over
    watch.refresh(time.monotonic())
    assert states(watch) == ["dead"] * 3
