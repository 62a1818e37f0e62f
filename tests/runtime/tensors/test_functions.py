"""Functions of the program that run on ranks with their shards."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from meshbook.runtime import ProcMesh
from meshbook.runtime.tensors import RemoteException, Tensor, inspect, remote
from tests.runtime.shards import clear, norms, shapes_of_norms

pytestmark = pytest.mark.real


def test_a_function_gives_what_it_was_said_to_give(grid: ProcMesh) -> None:
    found = remote(norms, propagate=shapes_of_norms)
    with grid.activate():
        x = torch.tensor([3.0, 4.0]) * (1 + grid.rank_tensor("dp"))
        results = found(x, power=2.0)
    assert isinstance(results["norm"], Tensor)
    assert (inspect(results, dp=0, tp=0)["norm"], inspect(results, dp=1, tp=0)["norm"]) == (5.0, 10.0)


def test_by_name_and_for_what_it_does(grid: ProcMesh) -> None:
    with grid.activate():
        x = torch.ones(2)
    assert remote("tests.runtime.shards.clear")(x) is None
    assert inspect(x).tolist() == [0, 0]
    remote(clear)(x)
    total = remote(lambda: torch.ones(3), propagate=lambda: torch.empty(3))
    with grid.activate():
        assert inspect(total()).tolist() == [1, 1, 1]


def test_what_it_raises_comes_to_who_asks(grid: ProcMesh) -> None:
    def fails(tensor: torch.Tensor) -> Any:
        raise ValueError("not today")

    with grid.activate():
        bad = remote(fails, propagate=lambda x: x)(torch.ones(1))
    with pytest.raises(RemoteException, match="rank 0: ValueError: not today") as caught:
        inspect(bad)
    assert "in fails" in str(caught.value)


def test_mistakes(grid: ProcMesh) -> None:
    with pytest.raises(TypeError, match="on which ranks"):
        remote(clear)(3)
    with pytest.raises(ValueError, match=r"'clear' names no function: say 'module\.name'"):
        remote("clear")
