"""Process groups of a script's own: made again by a cell that runs again, and let go of long after."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from meshbook.kernel.mesh import Mesh
from meshbook.kernel.run import Run
from meshbook.runtime.wire.tape import Text
from tests.kernel.cells import SUM, ran, values

pytestmark = [pytest.mark.slow, pytest.mark.real]

INIT = "dist.init_process_group('gloo')"


@pytest.fixture(scope="module")
def mesh(engine: str) -> Iterator[Mesh]:
    with Mesh.up("own", {"dp": 3}, engine=engine, path=sys.path, preload=("torch._dynamo",)) as mesh:
        ran(mesh, "import torch, torch.distributed as dist")
        yield mesh


@pytest.fixture(autouse=True)
def shared(mesh: Mesh, leaks: Any) -> Iterator[None]:
    """The mesh outlives each test, with new groups: no leak. Each begins without groups of a user's."""
    ran(mesh, "if dist.is_initialized(): dist.destroy_process_group()")
    yield
    leaks.allow_what_stands()


def said(run: Run) -> dict[int, str]:
    texts: defaultdict[int, str] = defaultdict(str)
    for rank, piece in run.take():
        assert isinstance(piece, Text)
        texts[rank] += piece.text
    return texts


def test_a_cell_takes_the_place_of_the_group_that_one_before_it_has_left(mesh: Mesh) -> None:
    assert said(ran(mesh, INIT, name="cell 1")) == {}
    again = ran(mesh, INIT, name="cell 2")
    assert not again.progress.failed
    assert said(again) == dict.fromkeys(range(3), "↻ the process group of cell 1 gives way to this one\n")
    assert values(mesh, SUM) == ["6.0"] * 3


@pytest.mark.parametrize("ranks", [None, [0, 1]], ids=["the same cell", "a slice"])
def test_else_there_are_none_twice(mesh: Mesh, ranks: list[int] | None) -> None:
    ran(mesh, INIT)
    told = values(mesh, INIT, ranks) if ranks else values(mesh, f"dist.destroy_process_group()\n{INIT}\n{INIT}")
    assert told and all("trying to initialize the default process group twice" in each for each in told)


@pytest.mark.parametrize("alone", [False, True], ids=["with all", "alone"])
def test_a_rank_that_has_not_come_to_it_comes_later(mesh: Mesh, alone: bool) -> None:
    assert ran(mesh, f"if rank == 0: 1 / 0\n{INIT}").progress.failed == [0]
    assert not ran(mesh, INIT, [0] if alone else None).progress.failed
    assert values(mesh, SUM) == ["6.0"] * 3


def test_a_model_whose_group_was_destroyed_is_let_go_of_after_others_were_renewed(mesh: Mesh) -> None:
    """The loop of its group looks next to never once it is taken for one of those that were given up."""
    train = (
        "net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))\nnet(torch.ones(1, 2)).sum().backward()"
    )
    keeps = f"{INIT}\n{train}\nmodels.append(net)\ndel net\ndist.destroy_process_group()"
    assert not ran(mesh, f"import gc\nmodels = []\n{keeps}\n{keeps}").progress.failed
    ran(mesh, "None")  # new groups
    mesh.unstick()
    assert values(mesh, "models.clear()\ngc.collect()\n'let go'") == ["'let go'"] * 3
