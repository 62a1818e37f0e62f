"""Values of real ranks compared: what was kept, by which cell, and how long."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from meshbook.kernel.mesh import Mesh
from meshbook.kernel.run import Run
from meshbook.kernel.values.difference import Comparison
from meshbook.kernel.values.measure import Tolerance
from meshbook.runtime.errors import MeshbookError

pytestmark = [pytest.mark.slow, pytest.mark.real]

WAIT = 30.0

SET_UP = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 2))
optimizer = torch.optim.Adam(model.parameters())
model(torch.ones(3, 8)).sum().backward()
optimizer.step()
"""


@pytest.fixture(scope="module")
def mesh(engine: str) -> Iterator[Mesh]:
    with Mesh.up("m", {"dp": 2, "tp": 2}, engine=engine, path=sys.path) as mesh:
        ran(mesh, SET_UP)
        yield mesh


def ran(mesh: Mesh, source: str, ranks: list[int] | None = None) -> Run:
    run = mesh.run(source, ranks, keep=True).finished.get(WAIT)
    assert not run.progress.failed, run.progress.outcomes
    return run


def compared(mesh: Mesh, source: str, ranks: list[int] | None = None, **tolerance: float) -> Comparison:
    return mesh.compare(ran(mesh, source, ranks), Tolerance(**tolerance))


def test_equal_models_and_optimizers(mesh: Mesh) -> None:
    assert repr(compared(mesh, "model")) == "ranks 0-3 are equal   Sequential, 4 leaves, 184 B"
    assert compared(mesh, "optimizer").is_equal
    assert compared(mesh, "model.state_dict()").is_equal


SHARDED = """
from torch.distributed.fsdp import fully_shard
torch.manual_seed(1)
sharded = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 2))
fully_shard(sharded, mesh=mesh.device_mesh["dp"])
"""


def test_a_healthy_sharded_model_agrees_and_what_drifts_is_named(mesh: Mesh) -> None:
    ran(mesh, SHARDED)
    found = compared(mesh, "sharded")
    assert found.is_equal and found.title == "ranks 0-3 agree   FSDPSequential, 4 leaves, 92 B"
    drift = "if rank == 3:\n    with torch.no_grad(): sharded[0].weight.to_local()[0, 0] += 1\n"
    found = compared(mesh, f"{drift}sharded")
    assert [(row.name, row.ranks) for row in found.rows] == [("0.weight (dp 1)", (3,))]


def test_the_parameters_that_differ_are_named(mesh: Mesh) -> None:
    source = """
if rank == 2:
    with torch.no_grad():
        model[1].weight[1, 3] += 0.25
    optimizer.param_groups[0]["lr"] = 0.5
"""
    ran(mesh, source)
    found = compared(mesh, "{'model': model, 'opt': optimizer}")
    assert found.groups == [(0, 1, 3), (2,)]
    assert [leaf.name for leaf in found.leaves] == ["model.1.weight", "opt.param_groups.0.lr"]
    apart = found.leaves[0].groups[1].apart
    assert apart is not None
    assert (apart.num_differing, apart.num_elements, apart.first) == (1, 8, 7)
    assert apart.largest == pytest.approx(0.25)
    assert compared(mesh, "model", atol=0.3).is_equal
    assert compared(mesh, "model", [0, 1, 3]).is_equal


def test_large_tensors() -> None:
    with Mesh.up("large", {"rank": 3}, path=sys.path, backend="none") as mesh:
        source = "import torch; x = torch.zeros(12_000_000, dtype=torch.bfloat16); x[-1] = rank // 2; x"
        (row,) = compared(mesh, source).rows
        assert row.ranks == (2,)
        assert row.what == "1 of 12,000,000 differ by up to 1 (1 relative), first at [11999999]"


@pytest.mark.parametrize("meanwhile", ["compared", "another cell"])
def test_a_value_is_kept_until_it_was_compared_or_another_cell_has_run(mesh: Mesh, meanwhile: str) -> None:
    run = ran(mesh, "1")
    if meanwhile == "compared":
        assert mesh.compare(run).is_equal
    else:
        ran(mesh, "2")
    with pytest.raises(MeshbookError, match="the value to compare is gone"):
        mesh.compare(run)


def test_an_error_of_the_users_own_code_is_raised(mesh: Mesh) -> None:
    run = ran(mesh, "class Odd:\n    def state_dict(self): raise ValueError('no state')\nOdd()")
    with pytest.raises(MeshbookError, match="ValueError: no state"):
        mesh.compare(run)


def test_a_rank_that_has_died_is_told(mesh: Mesh) -> None:
    with Mesh.up("mortal", {"rank": 2}, path=sys.path, backend="none") as mortal:
        run = ran(mortal, "rank")
        assert mortal.kill([1])
        with pytest.raises(MeshbookError, match="rank 1"):
            mortal.compare(run)
