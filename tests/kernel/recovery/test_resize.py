"""A mesh of a notebook grows and shrinks: what ranks know and are told, and that collectives work again."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from meshbook.kernel.mesh import Mesh
from meshbook.kernel.recovery import repairs
from meshbook.runtime.controller.regroup import wait_until
from meshbook.runtime.controller.resize import Resized, resize_roster
from meshbook.runtime.controller.roster import Roster
from meshbook.runtime.errors import MeshError, MeshStopped, SpawnError
from meshbook.widgets.grid import grid_html
from tests.kernel.cells import SUM, lose, ran, values

pytestmark = [pytest.mark.slow, pytest.mark.real]

TOLD = (
    "import os\n"
    "e = os.environ\n"
    "[rank, world_size, local_rank, tuple(coord.values()), mesh.rank == rank, mesh.coord == coord, mesh.sizes,\n"
    " [int(e[name]) for name in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE')],\n"
    " dist.get_rank(), dist.get_world_size()]"
)
ALONG = (
    "x = torch.ones(1) * (rank + 1)\n"
    "dist.all_reduce(x, group=mesh.device_mesh['tp'].get_group())\n"
    "(x.item(), mesh.device_mesh.shape)"
)


@pytest.fixture
def mesh(engine: str) -> Iterator[Mesh]:
    with Mesh.up("m", {"dp": 2, "tp": 2}, engine=engine, path=sys.path) as mesh:
        ran(mesh, "import torch, torch.distributed as dist", name="cell 1")
        yield mesh


def check(mesh: Mesh, dp: int, tp: int) -> None:
    """All ranks stand where they should, know it, and meet in collectives of all, of a slice and along an axis."""
    size = dp * tp
    assert mesh.axes == mesh.procs.sizes == mesh.roster.axes == {"dp": dp, "tp": tp}
    hosts = [mesh.roster.host_of(r) for r in range(size)]
    seats = [(hosts[:r].count(hosts[r]), hosts.count(hosts[r])) for r in range(size)]
    places = [
        (r, size, seats[r][0], (r // tp, r % tp), True, True, mesh.axes, [r, size, *seats[r]], r, size)
        for r in range(size)
    ]
    assert [eval(text) for text in values(mesh, TOLD)] == [list(place) for place in places]
    assert values(mesh, SUM) == [f"{size * (size + 1) / 2}"] * size
    last = list(range(tp * (dp - 1), size))
    summed = "x = torch.ones(1) * (rank + 1)\ndist.all_reduce(x, group=group)\nx.item()"
    assert values(mesh, summed, last) == [f"{float(sum(r + 1 for r in last))}"] * tp
    rows = [float(sum(r + 1 for r in range(d * tp, (d + 1) * tp))) for d in range(dp)]
    assert values(mesh, ALONG) == [str((rows[r // tp], (dp, tp))) for r in range(size)]


@pytest.mark.parametrize(("dp", "tp"), [(4, 2), (1, 2), (2, 3), (2, 1), (1, 1), (3, 1), (1, 3)])
def test_ranks_that_stay_keep_all_and_everybody_is_told(mesh: Mesh, dp: int, tp: int) -> None:
    ran(mesh, "born = (mesh.coord['dp'], mesh.coord['tp'])", name="cell 2")
    ran(mesh, "count = sum([])\nfor _ in [1]:\n    count += 1\n    dist.barrier()", name="cell 3")
    pids = {rank: state.pid for rank, state in mesh.roster.states.items()}
    resized = mesh.resize({"dp": dp, "tp": tp})
    check(mesh, dp, tp)
    old = {(d, t) for d in range(2) for t in range(2)}
    new = [(d, t) for d in range(dp) for t in range(tp)]
    assert values(mesh, "born, 'count' in globals()") == [str((point, point in old)) for point in new]
    assert resized.process.ranks == resized.healed.ranks == tuple(r for r, p in enumerate(new) if p not in old)
    if resized.process.ranks:
        assert (resized.healed.replayed, resized.healed.parts) == (("cell 1", "cell 2"), ())
    gone = sorted(old - set(new))
    assert [tuple(each.coord.values()) for each in resized.process.dropped] == gone
    assert [each.pid for each in resized.process.dropped] == [pids[2 * d + t] for d, t in gone]


def test_new_ranks_run_the_cells_of_their_slices_and_get_what_was_pushed(mesh: Mesh) -> None:
    ran(mesh, "lead = True", [0, 2], name="cell 2")  # tp=0
    ran(mesh, "first = True", [0, 1], name="cell 3")  # dp=0
    mesh.push({"lr": 0.5})
    mesh.push({"head": 1}, [0, 2])
    mesh.resize({"dp": 3, "tp": 3})
    names = "[name for name in ('lead', 'first', 'lr', 'head') if name in globals()]"
    all_of = {
        (d, t): [n for n, has in (("lead", t == 0), ("first", d == 0), ("lr", True), ("head", t == 0)) if has]
        for d in range(3)
        for t in range(3)
    }
    assert values(mesh, names) == [str(found) for found in all_of.values()]
    bare = mesh.resize({"dp": 4}, replay="none")
    assert bare.healed.replayed == ()
    assert values(mesh, names, [9, 10, 11]) == ["[]"] * 3


def test_new_ranks_get_what_was_pushed_after_the_cell_that_had_set_it(mesh: Mesh) -> None:
    ran(mesh, "lr = 0.1", name="cell 2")
    mesh.push({"lr": 0.5})
    mesh.resize({"dp": 3})
    assert values(mesh, "lr") == ["0.5"] * len(mesh)


def test_a_mesh_has_the_sizes_of_its_ranks_also_while_others_wait_for_them(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def resize(roster: Roster, *args: Any) -> Resized:
        resized = resize_roster(roster, *args)
        # As the line under `%mesh up` is drawn, on a thread of its own.
        seen.append(grid_html(list(mesh.states().values()), mesh.axes))
        assert (mesh.axes, mesh.num_ranks) == ({"dp": 1, "tp": 2}, 2)
        return resized

    monkeypatch.setattr(repairs, "resize_roster", resize)
    mesh.resize({"dp": 1})
    assert seen[0].count("title=") == 2


def test_models_are_built_and_trained_again(mesh: Mesh) -> None:
    ran(mesh, "net = torch.nn.Linear(2, 1)\nsteps = 7", name="cell 2")
    mesh.resize({"tp": 1})
    ran(mesh, "ddp = torch.nn.parallel.DistributedDataParallel(net)")
    step = "ddp(torch.ones(1, 2) * rank).sum().backward()\n(net.weight.grad[0, 0].item(), steps)"
    assert values(mesh, step) == ["(0.5, 7)"] * 2


def test_names_that_the_user_took_over_stay_his(mesh: Mesh) -> None:
    ran(mesh, "coord = 'mine'")
    mesh.resize({"dp": 1})
    assert values(mesh, "coord, world_size") == ["('mine', 2)"] * 2


def test_dead_ranks_that_stay_come_back_and_those_that_go_do_not(mesh: Mesh) -> None:
    mesh.roster.kill([0, 3])
    assert wait_until(mesh.roster, lambda: mesh.roster.dead() == [0, 3], 10)
    resized = mesh.resize({"tp": 1})
    assert resized.process.ranks == (0,)
    assert [(each.rank, each.was_dead) for each in resized.process.dropped] == [(1, False), (3, True)]
    check(mesh, 2, 1)


def test_the_sizes_it_has_change_nothing(mesh: Mesh) -> None:
    generation = mesh.roster.groups.generation
    resized = mesh.resize({"dp": 2})
    assert (resized.process.ranks, resized.process.dropped) == ((), ())
    assert mesh.roster.groups.generation == generation
    check(mesh, 2, 2)


def test_a_busy_rank_is_named_and_nothing_is_done_unless_it_goes(mesh: Mesh) -> None:
    wait = "import threading\ngo = threading.Event()\nwhile not go.wait(0.01): pass"
    gate = mesh.run(wait, [2])
    with pytest.raises(MeshError, match=r"rank 2 \(dp=1,tp=0, pid \d+\) is busy: wait, or stop"):
        mesh.resize({"tp": 1})
    assert mesh.axes == {"dp": 2, "tp": 2} and len(mesh.roster.alive()) == 4
    mesh.resize({"dp": 1})
    gate.finished.get(10)
    assert list(gate.progress.lost) == [2]
    check(mesh, 1, 2)


def test_handles_of_the_mesh_as_it_was(mesh: Mesh) -> None:
    procs = mesh.procs
    mesh.resize({"dp": 3})
    assert procs.slice(tp=0).sizes == {"dp": 2}  # still what it says
    mesh.resize({"tp": 1})
    with pytest.raises(MeshStopped, match="resized to dp=3 tp=1, which gave ranks other numbers"):
        procs.slice(tp=0)
    assert len(mesh.procs) == 3


def check_healing(mesh: Mesh) -> None:
    """Of six ranks the two that came last are dead; the others work, and these can be brought back."""
    assert wait_until(mesh.roster, lambda: mesh.roster.dead() == [2, 5], 10)
    assert values(mesh, "rank, world_size") == [f"({rank}, 6)" for rank in (0, 1, 3, 4)]
    assert mesh.heal().ranks == (2, 5)
    check(mesh, 2, 3)


def test_ranks_that_do_not_come_up_are_dead_in_a_mesh_that_works(mesh: Mesh) -> None:
    with pytest.raises(SpawnError, match=r"not ready after 0 s[^$]*`%mesh restart @dead` tries again"):
        mesh.resize({"tp": 3}, timeout=0)
    check_healing(mesh)


def test_who_stops_it_finds_the_ranks_that_come_dead_in_a_mesh_that_works(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(mesh.roster, "wait_ready", pressed)
        mesh.resize({"tp": 3})
    check_healing(mesh)


def test_a_rank_that_dies_as_it_begins_comes_back_as_one_that_knows_nothing(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(roster: Roster, *args: Any) -> Resized:
        lose(mesh, [1])
        return resize_roster(roster, *args)

    ran(mesh, "late = rank")
    monkeypatch.setattr(repairs, "resize_roster", dies)
    assert mesh.resize({"dp": 1}).healed.ranks == (1,)
    assert values(mesh, "late") == ["0", "1"]
    check(mesh, 1, 2)


def test_many_times_at_random(mesh: Mesh) -> None:
    """Twenty resizes: each rank remembers exactly the resizes that its coordinates have lived through."""
    chance = random.Random(4)
    ran(mesh, "seen = []", name="cell 2")
    lives: dict[tuple[int, int], list[int]] = {(d, t): [] for d in range(2) for t in range(2)}
    for turn in range(20):
        sizes = {axis: chance.randint(1, 3) for axis in chance.sample(["dp", "tp"], chance.randint(1, 2))}
        mesh.resize(sizes)
        dp, tp = mesh.axes.values()
        lives = {(d, t): lives.get((d, t), []) for d in range(dp) for t in range(tp)}
        for life in lives.values():
            life.append(turn)
        kept = values(mesh, f"dist.barrier()\nseen.append({turn})\nseen")  # communicates: that is not replayed
        assert kept == [str(life) for life in lives.values()], mesh.axes
        assert values(mesh, SUM) == [f"{dp * tp * (dp * tp + 1) / 2}"] * dp * tp
    check(mesh, dp, tp)
