"""Ranks that come back in a mesh of a notebook: what they know, and that collectives work again."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from meshbook.kernel.mesh import Mesh
from meshbook.runtime.controller.regroup import wait_until
from meshbook.runtime.errors import DeviceMeshError, MeshError, SpawnError
from meshbook.runtime.healing import heal, heal_mesh
from tests.kernel.cells import SUM, lose, ran, values

pytestmark = [pytest.mark.slow, pytest.mark.real]


@pytest.fixture
def mesh(engine: str) -> Iterator[Mesh]:
    with Mesh.up("m", {"dp": 2, "tp": 2}, engine=engine, path=sys.path) as mesh:
        ran(mesh, "import torch, torch.distributed as dist", name="cell 1")
        yield mesh


@pytest.mark.parametrize("victims", [[3], [0], [0, 1, 2, 3], [1, 2]])
def test_a_new_rank_knows_what_was_set_up_and_joins_collectives(mesh: Mesh, victims: list[int]) -> None:
    ran(mesh, "def double(x):\n    return 2 * x\nscale = 10", name="cell 2")
    ran(mesh, "only = rank", [2, 3], name="cell 3")
    ran(
        mesh,
        "import math\ncount = sum([])\nfor _ in [1, 2]:\n    count += double(1)\n    dist.barrier()",
        name="cell 4",
    )
    mesh.push({"lr": 0.5})
    assert values(mesh, SUM) == ["10.0"] * 4
    lose(mesh, victims)
    healed = mesh.heal()
    assert healed.ranks == tuple(victims)
    assert healed.replayed == (("cell 1", "cell 2", "cell 3") if set(victims) & {2, 3} else ("cell 1", "cell 2"))
    assert (healed.parts, dict(healed.failed), healed.unpushed) == (("cell 4",), {}, ())
    assert values(mesh, "double(scale), lr, globals().get('only'), 'count' in globals()") == [
        f"(20, 0.5, {rank if rank > 1 else None}, {rank not in victims})" for rank in range(4)
    ]
    assert values(mesh, SUM) == ["10.0"] * 4
    assert values(mesh, "x = torch.ones(1)\ndist.all_reduce(x, group=group)\nx.item()", [1, 2, 3]) == ["3.0"] * 3
    along = "x = torch.ones(1)\ndist.all_reduce(x, group=mesh.device_mesh['tp'].get_group())\nx.item()"
    assert values(mesh, along) == ["2.0"] * 4


def test_the_same_environment_and_coordinates(mesh: Mesh) -> None:
    names = "('RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT')"
    told = f"import os\n(mesh.coord, device, os.getcwd(), *map(os.environ.get, {names}))"
    before = values(mesh, told)
    lose(mesh, [2])
    assert heal_mesh(mesh) is mesh
    assert values(mesh, told) == before


def test_models_are_built_and_trained_again(mesh: Mesh) -> None:
    build = "net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))"
    step = "net(torch.ones(1, 2) * rank).sum().backward()\nnet.module.weight.grad[0, 0].item()"
    ran(mesh, build)
    assert values(mesh, step) == ["1.5"] * 4
    lose(mesh, [1])
    heal(mesh)
    ran(mesh, build)
    assert values(mesh, step) == ["1.5"] * 4


def test_a_model_of_before_fails_at_once_instead_of_hanging(mesh: Mesh) -> None:
    ran(mesh, "net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))")
    lose(mesh, [1])
    heal(mesh)
    run = mesh.run("net(torch.ones(1, 2)).sum().backward()", [0, 2, 3])
    run.finished.get(10)
    assert sorted(run.progress.failed) == [0, 2, 3]


def test_a_busy_rank_gets_its_groups_when_it_is_done(mesh: Mesh) -> None:
    gate = mesh.run("import threading\ngo = threading.Event()\nwhile not go.wait(0.01): pass", [0])
    lose(mesh, [3])
    healed = mesh.heal()
    assert healed.process.late == (0,)
    mesh.interrupt([0], gate.call)
    gate.finished.get(10)
    assert values(mesh, SUM) == ["10.0"] * 4


def test_where_they_could_not_come_back_living_ranks_are_not_ended(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def refuse(hosts: Sequence[str], again: Sequence[str] = ()) -> None:
        asked.append((len(hosts), len(again)))
        raise SpawnError("no room")

    monkeypatch.setattr(mesh.roster.crew, "check_room", refuse)
    lose(mesh, [1])
    with pytest.raises(SpawnError, match="no room"):
        mesh.heal([0, 1, 3])
    assert (asked, mesh.roster.dead()) == ([(1, 2)], [1])
    assert mesh.heal().ranks == (1,), "nothing is lost by trying"


def test_of_a_cell_that_still_runs_elsewhere_only_definitions_are_replayed(mesh: Mesh) -> None:
    run = mesh.run("import threading\nlimit = 3\nwhile True: pass", [0, 1], name="cell 2")
    lose(mesh, [1])
    healed = mesh.heal(timeout=5.0)
    assert (healed.replayed, healed.parts, dict(healed.failed)) == (("cell 1",), ("cell 2",), {})
    mesh.interrupt([0], run.call)
    run.finished.get(10)
    assert values(mesh, "limit", [1]) == ["3"]


def test_a_busy_rank_skips_groups_that_were_replaced_meanwhile(mesh: Mesh) -> None:
    gate = mesh.run("import threading\ngo = threading.Event()\nwhile not go.wait(0.01): pass", [0])
    for _ in range(3):  # each makes groups that meet at another rank, which is then gone
        mesh.heal([mesh.roster.groups.store_rank or 1])
    mesh.interrupt([0], gate.call)
    gate.finished.get(10)
    assert wait_until(mesh.roster, lambda: mesh.roster.states[0].name == "idle", 10)
    ran(mesh, "import torch, torch.distributed as dist")
    assert values(mesh, SUM) == ["10.0"] * 4


def test_what_was_pushed_to_some_later_is_not_lost_for_the_others(mesh: Mesh) -> None:
    mesh.push({"lr": 0.5})
    mesh.push({"lr": 0.1}, [0])
    lose(mesh, [0, 3])
    mesh.heal()
    assert values(mesh, "lr") == ["0.1", "0.5", "0.5", "0.5"]


class Picky:
    """A 5 on ranks where an expression is true; else what the expression does to them."""

    def __init__(self, condition: str) -> None:
        self.condition = condition

    def __reduce__(self) -> Any:
        return eval, (f"({self.condition}) and 5", {"os": os})


def test_what_was_pushed_as_a_rank_died_comes_with_it_and_the_others_have_it(mesh: Mesh, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    with pytest.raises(
        DeviceMeshError, match=r"^lr was pushed to ranks 0,2-3, not to rank 1: .* exited with"
    ) as caught:
        mesh.push({"lr": Picky(f"os.environ['RANK'] != '1' or os.path.exists({str(flag)!r}) or os._exit(3)")})
    assert caught.value.lost == (1,)
    flag.touch()
    assert mesh.heal().unpushed == ()
    assert values(mesh, "lr") == ["5"] * 4


def test_what_a_rank_cannot_read_the_others_have(mesh: Mesh) -> None:
    with pytest.raises(MeshError, match=r"^lr was pushed to ranks 0-1,3, not to rank 2: .*No such file") as caught:
        mesh.push({"lr": Picky("os.environ['RANK'] != '2' or os.stat('/no/such/file')")})
    assert list(caught.value.by_rank) == [2]
    assert values(mesh, "globals().get('lr', 0)") == ["5", "5", "0", "5"]
    lose(mesh, [2, 3])
    assert mesh.heal().unpushed == ()
    assert values(mesh, "globals().get('lr', 0)") == ["5", "5", "0", "5"]


def test_what_the_user_did_not_wait_for_is_pushed_again(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("meshbook.kernel.mesh.wait_for", pressed)
        mesh.push({"lr": 0.5})
    lose(mesh, [1])
    mesh.heal()
    assert values(mesh, "lr") == ["0.5"] * 4


def test_pushes_and_cells_come_again_in_their_order(mesh: Mesh) -> None:
    ran(mesh, "lr = 0.1", name="cell 2")
    mesh.push({"lr": 0.5})
    ran(mesh, "first = lr", name="cell 3")
    mesh.push({"lr": 0.9})
    ran(mesh, "own = 1", name="cell 4")
    mesh.push({"own": 2}, [1, 2])
    lose(mesh, [1, 3])
    assert mesh.heal().unpushed == ()
    assert values(mesh, "lr, first, own") == [f"(0.9, 0.5, {own})" for own in (1, 2, 2, 1)]


def test_cells_that_fail_on_the_new_rank_are_named_and_do_no_harm(mesh: Mesh, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    ran(mesh, f"import os\nflag = {str(flag)!r}", name="cell 2")
    ran(mesh, "assert os.path.exists(flag)\nlate = 1", name="cell 3")
    flag.unlink()
    lose(mesh, [2])
    healed = mesh.heal()
    assert dict(healed.failed) == {"cell 3": (2,)}
    assert values(mesh, "rank") == ["0", "1", "2", "3"]


def test_a_replay_that_takes_too_long_is_interrupted(mesh: Mesh, tmp_path: Any) -> None:
    flag = tmp_path / "first"
    source = f"import pathlib, time\nif not pathlib.Path({str(flag)!r}).exists():\n    pass\nelse:\n    time.sleep(60)"
    ran(mesh, source, name="cell 2")
    flag.touch()
    mesh.push({"after": 1})
    lose(mesh, [0])
    healed = mesh.heal(timeout=3.0)
    assert (dict(healed.failed), healed.unpushed) == ({"cell 2": (0,)}, ())
    assert values(mesh, "after", [0]) == ["1"]
    assert values(mesh, SUM) == ["10.0"] * 4


def test_a_replay_that_waits_for_ranks_which_live_on_is_freed(mesh: Mesh, tmp_path: Path) -> None:
    helper = "import torch.distributed as dist\ndef mean(x):\n    dist.all_reduce(x)\n    return x\n"
    (tmp_path / "its_name_does_not_say_so.py").write_text(helper)
    ran(
        mesh,
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport its_name_does_not_say_so as own",
        name="cell 2",
    )
    ran(mesh, "loss = own.mean(torch.ones(1))", name="cell 3")
    ran(mesh, "after = rank", name="cell 4")
    lose(mesh, [1])
    started = time.monotonic()
    healed = mesh.heal()
    assert time.monotonic() - started < 30, "half of how long cells may take"
    assert dict(healed.failed) == {"cell 3": (1,)}
    assert dict(healed.reasons) == {"cell 3": "it waits in all_reduce for ranks that live on"}
    assert dict(healed.together) == {"cell 3": (0, 1, 2, 3)}
    assert healed.mended.startswith("new process groups")
    assert values(mesh, "after") == ["0", "1", "2", "3"]
    assert values(mesh, SUM) == ["10.0"] * 4


def test_what_takes_long_in_a_restart_is_told(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshbook.kernel.recovery.replaying.TELL_SECONDS", 0.1)
    ran(mesh, "import time; time.sleep(1)", name="cell 2")
    lose(mesh, [1])
    told: list[str] = []
    assert mesh.heal(tell=told.append).replayed == ("cell 1", "cell 2")
    assert told[0] == "rank 1 still: cell 2 runs again there"


def test_what_cannot_be_pushed_again_is_named(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshbook.kernel.sources.journal.LARGEST_PUSH", 1000)
    mesh.push({"small": 1, "large": bytes(5000)})
    lose(mesh, [0])
    assert mesh.heal().unpushed == ("large",)
    assert values(mesh, "small", [0]) == ["1"]


def test_none_gives_a_bare_rank_and_all_runs_everything(mesh: Mesh) -> None:
    ran(mesh, "total = 0", name="cell 2")
    ran(mesh, "for _ in range(3): total += sum([1])\nprint()", name="cell 3")
    lose(mesh, [1])
    assert mesh.heal(replay="none").replayed == ()
    assert values(mesh, "'total' in globals()", [1]) == ["False"]
    healed = mesh.heal([1], replay="all")
    assert healed.replayed == ("cell 1", "cell 2", "cell 3", "cell 4")[: len(healed.replayed)]
    assert values(mesh, "total", [1]) == ["3"]


@pytest.mark.parametrize("link", ["zmq", "zmq-tcp"])
def test_over_other_links(engine: str, link: str) -> None:
    with Mesh.up("z", {"dp": 2}, engine=engine, path=sys.path, link=link) as mesh:
        ran(mesh, "import torch, torch.distributed as dist")
        lose(mesh, [0])
        heal(mesh)
        assert values(mesh, SUM) == ["3.0"] * 2


def test_after_the_zygote_has_gone_another_one_forks(engine: str, leaks: Any) -> None:
    with Mesh.up("o", {"dp": 2}, engine=engine, path=sys.path) as mesh:
        ran(mesh, "import torch, torch.distributed as dist")
        psutil.Process(psutil.Process(mesh.roster.states[1].pid).ppid()).kill()
        lose(mesh, [1])
        heal(mesh)
        assert values(mesh, SUM) == ["3.0"] * 2
    leaks.allow_what_stands()  # the new zygote stays until the session ends
