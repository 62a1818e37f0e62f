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


@pytest.mark.parametrize(
    ("gives", "says"),
    [
        (lambda x: (x, x), "TypeError: it gives 2 tensors, where its propagate gives a tensor"),
        (lambda x: None, "TypeError: it gives NoneType, where its propagate gives a tensor"),
        (lambda x: [x, 3], "TypeError: it gives a tensor, int, where its propagate gives a tensor"),
        (lambda x: [], "TypeError: it gives nothing, where its propagate gives a tensor"),
    ],
)
def test_a_function_that_gives_something_else_spoils_nothing_but_its_result(
    grid: ProcMesh, gives: Any, says: str
) -> None:
    with grid.activate():
        x = torch.ones(1)
        bad, fine = remote(gives, propagate=lambda x: x)(x), x + 1
    with pytest.raises(RemoteException, match=f"rank 0: {says}"):
        inspect(bad)
    assert inspect(fine).tolist() == [2]


def test_what_is_no_tensor_may_stand_among_results(grid: ProcMesh) -> None:
    with grid.activate():
        x = torch.ones(1)
    number, same = remote(lambda x: (3, x), propagate=lambda x: (3, x))(x)
    assert (number, inspect(same).tolist()) == (3, [1])


def test_mistakes(grid: ProcMesh) -> None:
    with pytest.raises(TypeError, match="on which ranks"):
        remote(clear)(3)
    with pytest.raises(ValueError, match=r"'clear' names no function: say 'module\.name'"):
        remote("clear")
