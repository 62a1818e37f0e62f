"""Ranks that hang in collectives: they are freed with all their state, and the next collective works."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meshbook.kernel.mesh import Mesh
from meshbook.kernel.recovery.repairs import mended_text
from meshbook.kernel.run import Run
from meshbook.kernel.stopping.heard import listen
from meshbook.runtime import ActorError, Channel
from meshbook.runtime.controller.regroup import regroup, wait_until
from tests.kernel.cells import SUM, ran, until_at, values
from tests.runtime.busy import AsyncBusy

pytestmark = [pytest.mark.slow, pytest.mark.real]

FUNCTIONAL = "import torch.distributed._functional_collectives as functional"


@pytest.fixture(scope="module")
def mesh(engine: str) -> Iterator[Mesh]:
    """One mesh for all: each test leaves it as it found it, which is what they are about."""
    with Mesh.up("m", {"dp": 3}, engine=engine, path=sys.path) as mesh:
        ran(mesh, f"import torch, torch.distributed as dist\n{FUNCTIONAL}")
        ran(mesh, "net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))\nkept = rank * 10")
        assert values(mesh, SUM) == ["6.0"] * 3
        yield mesh


@pytest.fixture(autouse=True)
def shared(mesh: Mesh, leaks: Any) -> Iterator[None]:
    """The mesh outlives each test, with new processes and logs: no leak."""
    yield
    leaks.allow_what_stands()


WAITS = {
    "all_reduce": "dist.all_reduce(torch.ones(2))",
    "barrier": "dist.barrier()",
    "monitored_barrier": "dist.monitored_barrier()",
    "recv": "dist.recv(torch.ones(1), 1)",
    "reduce_scatter": "dist.reduce_scatter_tensor(torch.ones(1), torch.ones(3))",
    "functional": "functional.all_reduce(torch.ones(3), 'sum', dist.group.WORLD).sum()",
    "backward of DDP": "net(torch.ones(1, 2)).sum().backward()",
    "a group of its own": "dist.all_reduce(torch.ones(1), group=dist.new_group())",
    "objects": "dist.all_gather_object([None] * 3, 'x')",
}


@pytest.mark.parametrize(("name", "wait"), WAITS.items(), ids=list(WAITS))
def test_stuck_ranks_are_freed_and_the_next_collective_works(mesh: Mesh, name: str, wait: str) -> None:
    ran(mesh, "net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))")
    values(mesh, SUM)
    others = "1" if "new_group" not in wait else "dist.new_group()"
    run = mesh.run(f"print('in')\nif rank == 1:\n    {others}\nelse:\n    {wait}\n    lost = 1")
    assert wait_until(mesh.roster, lambda: run.owing == [0, 2], 20)
    if name in ("all_reduce", "barrier", "monitored_barrier", "recv"):
        until_at(mesh, f"waiting in {name}", [0, 2])
    done = mesh.unstick()
    assert (done.freed, done.busy, done.late) == ((0, 2), (), ())
    run.finished.get(10)
    assert sorted(run.progress.failed) == [0, 2]
    assert values(mesh, SUM) == ["6.0"] * 3
    assert values(mesh, "kept, 'lost' in globals()") == ["(0, False)", "(10, False)", "(20, False)"]


def test_a_rank_that_never_came_leaves_no_trap_behind(mesh: Mesh) -> None:
    """The first collective of fresh groups waits for its peers to connect: nothing is there to be shut."""
    for _ in range(3):
        run = mesh.run("if rank != 1: dist.barrier()")
        until_at(mesh, "waiting in barrier", [0, 2])
        mesh.interrupt(run.owing, run.call)
        run.finished.get(10)
        assert mesh.mend() == "they were out of step"
        assert values(mesh, "rank") == ["0", "1", "2"]  # the old group is let go of here
    assert values(mesh, SUM) == ["6.0"] * 3


def interrupted(mesh: Mesh, source: str) -> Run:
    """A cell that was stopped as rank 1 waited in a collective."""
    run = mesh.run(source)
    until_at(mesh, "waiting in", [1])
    mesh.interrupt(run.owing, run.call)
    run.finished.get(10)
    return run


@pytest.mark.parametrize("other", ["dist.broadcast(torch.ones(2), 0)", "dist.all_reduce(torch.ones(3))"])
def test_ranks_that_met_in_different_collectives_leave_no_trap_behind(mesh: Mesh, other: str) -> None:
    """They have issued equally many. What never ends keeps a thread of the group, which has two."""
    for _ in range(3):
        run = interrupted(mesh, f"if rank == 1: {other}\nelse: dist.all_reduce(torch.ones(2))")
        mesh.last_failed = tuple(run.ranks)  # a cell that failed before leaves it so
        assert mesh.mend() == "a collective was left open in them"
        assert values(mesh, SUM) == ["6.0"] * 3
    mesh.last_failed = ()


def test_what_a_cell_has_left_is_mended_beside_actors_that_wait_for_something_else(mesh: Mesh) -> None:
    begun, arrived = Channel[str].open()
    actors = mesh.procs.spawn("actors", AsyncBusy, begun)
    asked = actors.sleep.call()
    assert [arrived.recv().get(20) for _ in range(3)] == ["sleep"] * 3
    interrupted(mesh, "if rank == 1: dist.barrier()")
    assert mesh.mend() == "a collective was left open in them"
    assert values(mesh, SUM) == ["6.0"] * 3
    mesh.interrupt_actors()
    with pytest.raises(ActorError, match="interrupted"):
        asked.get(20)
    actors.stop().get(20)


@pytest.mark.parametrize(
    "call",
    [
        "dist.gather(x, [x, x, x] if rank < 2 else None, dst=rank % 2)",
        "dist.broadcast(x, src=min(rank, 1))",
        "try: dist.all_to_all_single(torch.ones(3 if rank else 6), torch.ones(3))\nexcept RuntimeError: pass",
    ],
    ids=["gather to different ranks", "broadcast from different ranks", "a rank whose sizes torch refuses"],
)
def test_what_all_have_issued_and_never_ends_leaves_no_trap_behind(mesh: Mesh, call: str) -> None:
    for _ in range(3):
        interrupted(mesh, f"x = torch.ones(2)\n{call}")
        deadline = time.monotonic() + 20
        while (why := mesh.mend()) != "a collective was left open in them":
            assert not why and time.monotonic() < deadline, why
        assert values(mesh, SUM) == ["6.0"] * 3


def test_a_wait_for_a_rank_that_is_busy_now_does_not_hold_up_new_groups(mesh: Mesh) -> None:
    """Its own connections stay open until it is done: the others must know which of theirs lead to it."""
    values(mesh, SUM)
    run = mesh.run("if rank != 1: dist.barrier()")
    until_at(mesh, "waiting in barrier", [0, 2])
    mesh.interrupt(run.owing, run.call)
    run.finished.get(10)
    gate = mesh.run("import time\ntime.sleep(60)", [0])
    until_at(mesh, "line 2", [0])
    assert mesh.unstick([1, 2]).late == (0,)
    assert values(mesh, "rank", [1, 2]) == ["1", "2"]
    mesh.interrupt([0], gate.call)
    gate.finished.get(10)
    assert values(mesh, SUM) == ["6.0"] * 3


def test_cells_run_beside_a_stopped_rank_that_serves_the_store(mesh: Mesh) -> None:
    regroup(mesh.roster)  # groups of slices are yet to be made
    store = mesh.roster.groups.store_rank
    others = [rank for rank in mesh.roster.alive() if rank != store]
    pid = mesh.roster.states[store].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        while mesh.states()[store] != "stuck":
            pass
        assert values(mesh, "rank", others) == [str(rank) for rank in others]
        told = values(mesh, "dist.barrier(group=group)", others)
        assert all(f"rank {store}, which serves their store, is stopped" in text for text in told)
    finally:
        os.kill(pid, signal.SIGCONT)
    mesh.mend()
    assert values(mesh, SUM) == ["6.0"] * 3


def test_ranks_in_step_keep_their_groups(mesh: Mesh) -> None:
    generation = mesh.roster.groups.generation
    run = mesh.run("import time\ndist.barrier()\ntime.sleep(60)")
    assert wait_until(mesh.roster, lambda: len(run.owing) == 3, 10)
    until_at(mesh, "line 3", [0, 1, 2])
    mesh.interrupt(run.owing, run.call)
    run.finished.get(10)
    assert mesh.mend() == ""
    assert mesh.roster.groups.generation == generation
    assert values(mesh, SUM) == ["6.0"] * 3


def test_without_a_rank_to_free_the_groups_are_new_all_the_same(mesh: Mesh) -> None:
    generation = mesh.roster.groups.generation
    done = mesh.unstick()
    assert (done.freed, done.busy, done.late) == ((), (), ())
    assert mesh.roster.groups.generation == generation + 1
    assert mesh.unstick(reinit=False).late is None
    assert mesh.roster.groups.generation == generation + 1
    assert values(mesh, SUM) == ["6.0"] * 3


def test_a_rank_that_hears_nothing_is_named(mesh: Mesh, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    run = mesh.run(
        "import os, signal\nif rank == 2:\n    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n"
        f"    while not os.path.exists({str(gate)!r}): pass\n"
        "    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])"
    )
    assert wait_until(mesh.roster, lambda: run.owing == [2], 10)
    until_at(mesh, "line 4", [2])  # it hears nothing from here on
    done = mesh.unstick(timeout=0.3)
    assert (done.freed, done.busy, done.late) == ((), (2,), (2,))
    gate.touch()
    run.finished.get(10)
    assert values(mesh, SUM) == ["6.0"] * 3


def until_there(path: Path) -> str:
    return f"import pathlib\nwhile not pathlib.Path({str(path)!r}).exists(): pass\n"


def test_a_cell_does_not_begin_where_one_before_it_has_failed(mesh: Mesh, tmp_path: Path) -> None:
    """Else its collectives would meet those that the others still wait in."""
    gate = tmp_path / "gate"
    runs = [mesh.run(f"{until_there(gate)}1 / (rank - 1)"), mesh.run("began = 2"), mesh.run("began = 3")]
    gate.touch()
    runs[-1].finished.get(20)
    assert [run.progress.failed for run in runs] == [[1], [1], [1]]
    refused = f"not run: {runs[1].name}, which was to end first, has failed here"
    assert refused in runs[2].progress.outcomes[1].decode(errors="replace")
    assert values(mesh, "globals().pop('began', 1)") == ["3", "1", "3"]


def test_groups_of_ranks_that_were_busy_are_looked_at_again_before_the_next_cell(
    mesh: Mesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    run = mesh.run(until_there(gate), [2])
    assert mesh.mend() == ""
    looks: list[str] = []
    monkeypatch.setattr(mesh, "mend", lambda renews: looks.append(Mesh.mend(mesh, renews)))
    ran(mesh, "pass", [0])
    gate.touch()
    run.finished.get(20)
    assert not looks
    ran(mesh, "pass", [0])
    ran(mesh, "pass", [0])
    assert looks == [""]


def test_ranks_that_still_wait_in_a_stopped_cell_are_freed_before_the_next_one(mesh: Mesh, tmp_path: Path) -> None:
    """As the cell was given up the last one of them still worked: nobody waited in vain yet."""
    ran(mesh, "net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))")
    gate = tmp_path / "gate"
    run = mesh.run(f"if rank < 2:\n    net(torch.ones(1, 2)).sum().backward()\n{until_there(gate)}")
    while (0, 1) not in {found.waiting for found in mesh.ledger([0, 1]).findings}:
        assert not run.progress.failed
    mesh.interrupt([0, 1])
    run.abandon()
    another = mesh.run("kept", [2])
    assert not another.mended
    gate.touch()
    another.finished.get(20)
    after = ran(mesh, SUM)
    assert after.mended == (
        "freed ranks 0-1, which still waited in cell "
        f"{run.cell}; process groups renewed, as their connections were broken off: models go on with them"
    )
    assert values(mesh, SUM) == ["6.0"] * 3


LEAVES = """
try:
    if rank < 2:
        dist.barrier()
finally:
    if rank < 2:
        {save}
        open("{folder}/" + str(rank), "w").close()"""


def test_ranks_that_save_something_after_a_stopped_collective_do_so_and_find_new_groups(
    mesh: Mesh, tmp_path: Path
) -> None:
    """They are not freed from what they have left: the next cell waits for them, and its collectives are its own."""
    gate, saved = tmp_path / "gate", tmp_path / "saved"
    saved.mkdir()
    save = until_there(gate).replace("\n", "\n        ")
    run = mesh.run(LEAVES.format(save=save, folder=saved))
    while (0, 1) not in {found.waiting for found in mesh.ledger([0, 1]).findings}:
        assert not run.progress.failed
    mesh.interrupt([0, 1], run.call)
    while listen(mesh.roster, [0, 1]).at_work != [0, 1]:
        assert not run.finished.done()
    run.abandon()
    after, again = mesh.run(SUM), mesh.run("pass")
    gate.touch()
    again.finished.get(20)
    assert after.mended.startswith(f"ranks 0-1 left a collective in cell {run.cell}; ")
    assert "process groups" in after.mended and not again.mended
    assert sorted(each.name for each in saved.iterdir()) == ["0", "1"]
    assert not after.progress.failed
    assert values(mesh, SUM) == ["6.0"] * 3


def test_when_the_rank_with_the_store_dies_the_others_still_make_groups(mesh: Mesh) -> None:
    mesh.roster.kill([mesh.roster.groups.store_rank])
    assert wait_until(mesh.roster, lambda: bool(mesh.roster.dead()), 10)
    left = mesh.roster.alive()
    assert mended_text(mesh) == "new process groups for the ranks that live, as their store was gone"
    assert values(mesh, "x = torch.ones(1)\ndist.all_reduce(x, group=group)\nx.item()", left) == ["2.0"] * 2
    mesh.heal()
    assert values(mesh, SUM) == ["6.0"] * 3
    ran(mesh, "kept = rank * 10")


def test_where_a_script_has_destroyed_its_groups_the_next_cell_has_new_ones(mesh: Mesh) -> None:
    script = "dist.init_process_group()\ndist.destroy_process_group()"
    ran(mesh, script)
    run = ran(mesh, SUM)
    assert run.mended.startswith("new process groups, as a cell had destroyed them: ")
    assert not run.progress.failed
    assert not ran(mesh, script).mended
    assert values(mesh, "x = torch.ones(1)\ndist.all_reduce(x, group=group)\nx.item()", [0, 1]) == ["2.0"] * 2
    ran(mesh, script)
    ran(mesh, script)  # its own take the place of the new ones
    assert values(mesh, SUM) == ["6.0"] * 3


def test_where_some_have_destroyed_theirs_the_group_of_cells_is_gone_too(mesh: Mesh) -> None:
    """Not so that some would fail, and others wait for them."""
    ran(mesh, "dist.destroy_process_group()", [0, 1])
    assert not ran(mesh, "rank", [2]).mended
    told = values(mesh, "dist.all_reduce(torch.ones(1), group=group)", [0, 1])
    assert all("no process group of this slice: there is no default one any more" in each for each in told)
    ran(mesh, "dist.destroy_process_group()", [2])
    assert values(mesh, SUM) == ["6.0"] * 3


def test_a_rank_that_could_not_make_its_new_groups_says_so_where_they_are_used(mesh: Mesh) -> None:
    here = "from meshbook.runtime.ranks.place import here"
    ran(mesh, f"{here}\ndist.destroy_process_group()\nhere().groups.trouble = 'ConnectionError: it is gone'", [1])
    [told] = values(mesh, "dist.all_reduce(torch.ones(1), group=group)", [1])
    assert "no process group of this slice: new ones could not be made here: ConnectionError: it is gone" in told
    mesh.unstick()
    assert values(mesh, SUM) == ["6.0"] * 3


HELD = """
import os, queue, threading, time
from meshbook.runtime.ranks.place import here
groups, held = here().groups, queue.Queue()
def let_go():
    while not os.path.exists({gate!r}): time.sleep(0.01)
    del groups.slice_group
    held.put(None)
groups.slice_group = held.get
threading.Thread(target=let_go).start()
"""


def test_who_makes_the_group_of_its_cell_says_so(mesh: Mesh, tmp_path: Path) -> None:
    """It may wait there for a store that does not answer, and no line of the user's runs."""
    gate = tmp_path / "gate"
    ran(mesh, HELD.format(gate=str(gate)), [1])
    run = mesh.run("rank", [0, 1])
    until_at(mesh, f"the beginning of {run.name}, where its `group` is made", [1])
    gate.touch()
    assert sorted(run.finished.get(10).progress.outcomes) == [0, 1]
    assert mesh.where([0, 1], 5) == {0: "", 1: ""}
