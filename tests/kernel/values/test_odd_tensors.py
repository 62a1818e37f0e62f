"""Distributed tensors (DTensor): what a notebook is told of them, and what it has of them."""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from meshbook.kernel.mesh import Mesh
from meshbook.kernel.values.gist import gist_of
from meshbook.kernel.values.odd_tensors import for_notebook, partial_of
from meshbook.kernel.values.records import record_of
from meshbook.kernel.values.results import MeshResult
from meshbook.kernel.values.summary import describe
from meshbook.runtime.wire import codec


@pytest.fixture(scope="module")
def mesh() -> Generator[Any]:
    """That of rank 1 of 2, whose group communicates with nobody."""
    dist.init_process_group("fake", rank=1, world_size=2, store=FakeStore())
    yield init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    dist.destroy_process_group()


def distributed(mesh: Any, part: torch.Tensor, placement: Placement) -> DTensor:
    return DTensor.from_local(part, mesh, [placement])


def arrived(value: object) -> Any:
    return codec.loads(codec.dumps(value, for_notebook()))


@pytest.mark.parametrize("placement", [Shard(0), Replicate(), Partial()])
def test_the_notebook_has_the_part_of_the_rank(mesh: Any, placement: Placement) -> None:
    part = torch.arange(4.0).reshape(2, 2)
    found = arrived({"w": distributed(mesh, part, placement)})["w"]
    assert type(found) is torch.Tensor
    assert found.equal(part)


def test_parameters_stay_parameters(mesh: Any) -> None:
    own = torch.nn.Linear(2, 2)
    own.weight = torch.nn.Parameter(distributed(mesh, torch.ones(1, 2), Shard(0)))
    found = arrived(own)
    assert type(found.weight) is torch.nn.Parameter
    assert found.weight.equal(torch.ones(1, 2))
    assert type(own.weight) is DTensor
    assert own.weight.requires_grad


def test_its_numbers_are_those_of_the_part_of_the_rank(mesh: Any) -> None:
    found = gist_of(distributed(mesh, torch.arange(4.0).reshape(2, 2), Shard(0)))
    assert found is not None
    assert (found.least, found.most, found.mean, found.num_seen) == (0.0, 3.0, 1.5, 4)


def test_a_table_has_numbers_that_all_ranks_have_and_says_of_what_another_is_a_part(mesh: Any) -> None:
    whole = distributed(mesh, torch.tensor(0.5), Replicate())
    part = distributed(mesh, torch.tensor(3.5), Partial())
    shard = distributed(mesh, torch.ones(2), Shard(0))
    assert record_of({"loss": whole, "norm": part, "w": shard}) == {
        "loss": 0.5,
        "norm": "3.5 of Partial(sum)",
        "w": "float32 [4]",
    }
    assert gist_of(part) is None
    assert partial_of(part) == "Partial(sum)"
    assert partial_of(whole) == partial_of(shard) == ""


def test_its_size_is_what_its_rank_has(mesh: Any) -> None:
    told = describe(distributed(mesh, torch.ones(3), Shard(0)))
    assert (told.shape, told.nbytes) == ((6,), 12)


@pytest.mark.slow
@pytest.mark.real
def test_what_is_pulled_and_what_a_cell_comes_back_with(engine: str) -> None:
    cell = """
import torch
from torch.distributed.tensor import Shard, distribute_tensor
w = distribute_tensor(torch.arange(6000.0).reshape(2, 3000), mesh.device_mesh, [Shard(0)])
w
"""
    with Mesh.up("m", {"dp": 2}, engine=engine, path=sys.path) as mesh:
        run = mesh.run(cell).finished.get(30)
        parts = torch.arange(6000.0).reshape(2, 1, 3000)
        came = run.progress
        result = MeshResult(run.axes, run.ranks, came.outcomes, came.seconds, came.lost, codec.loads)
        assert result.stack().equal(parts)
        pulled = mesh.pull("w")
        assert torch.stack([pulled[0], pulled[1]]).equal(parts)
        pulled[0].add_(1)
        assert mesh.pull("w", [0])[0].equal(parts[0])
