"""Shards brought to the program."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch

from meshbook.runtime import ProcMesh
from meshbook.runtime.tensors import fetch_shard, inspect

pytestmark = pytest.mark.real


def test_of_anything_that_holds_tensors(grid: ProcMesh) -> None:
    with grid.activate():
        x = torch.ones(2) * grid.rank_tensor("dp")
    assert inspect({"a": [x, 3], "b": (x + 1,)}, {"dp": 1, "tp": 0})["b"][0].tolist() == [2, 2]
    assert inspect(x).tolist() == [0, 0], "of the first rank, where nothing is said"


def test_it_is_a_future(grid: ProcMesh) -> None:
    with grid.activate():
        x = torch.arange(3)

    async def fetched() -> torch.Tensor:
        return await fetch_shard(x, dp=0, tp=1)

    assert asyncio.run(fetched()).tolist() == [0, 1, 2]
    assert fetch_shard(x).get(10).tolist() == [0, 1, 2]


def test_a_shard_is_a_plain_tensor_of_one_s_own(grid: ProcMesh) -> None:
    with grid.activate():
        x = torch.ones(2)
        shard = inspect(x)
    assert type(shard) is torch.Tensor
    shard += 1
    assert inspect(x).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("asked", "kind", "says"),
    [
        ({"dp": 1}, ValueError, "Missing key 'tp' in shard map: name all of dp, tp, or none"),
        ({"dp": 2, "tp": 0}, ValueError, "dp=2 is no rank of the mesh: it goes from 0 to 1"),
        ({"dp": 0, "tp": -1}, ValueError, "tp=-1 is no rank of the mesh"),
        ({"pp": 0}, ValueError, "there is no axis 'pp' in the shard map: the mesh has dp, tp"),
    ],
)
def test_coordinates_that_are_none(grid: ProcMesh, asked: dict[str, Any], kind: Any, says: str) -> None:
    with grid.activate():
        x = torch.ones(1)
    with pytest.raises(kind, match=says):
        inspect(x, **asked)


def test_there_must_be_something_to_bring(grid: ProcMesh) -> None:
    with pytest.raises(TypeError, match="there is no distributed tensor to bring here"):
        inspect([1, torch.ones(1)])
    with grid.activate():
        assert inspect([1, None]) == [1, None], "as it is, when all ranks have come to it"
