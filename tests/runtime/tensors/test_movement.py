"""Shards that are combined along axes of the mesh."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from meshbook.runtime import ProcMesh
from meshbook.runtime.tensors import RemoteException, Tensor, inspect, slice_mesh
from meshbook.runtime.tensors import reduce as reduce_typed
from meshbook.runtime.tensors import reduce_ as reduce_in_place_typed

pytestmark = pytest.mark.real

reduce: Any = reduce_typed  # to a type checker, what torch makes on a mesh is a plain tensor
reduce_: Any = reduce_in_place_typed


def mine(grid: ProcMesh) -> Any:
    """`1 + 2 dp + 4 tp`, twice."""
    with grid.activate():
        return torch.ones(2, dtype=torch.int64) + 2 * grid.rank_tensor("dp") + 4 * grid.rank_tensor("tp")


def shards(tensor: Any) -> list[Any]:
    return [inspect(tensor, dp=d, tp=t).tolist() for d in (0, 1) for t in (0, 1)]


def test_a_tensor_s_mesh_knows_its_ranks_by_monarch_s_name(grid: ProcMesh) -> None:
    mesh: Any = mine(grid).mesh
    assert shards(mesh.rank("dp")) == [0, 0, 1, 1]
    assert shards(mesh.rank(["dp", "tp"])) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("dims", "reduction", "expected"),
    [
        ("dp", "sum", [4, 12, 4, 12]),
        ("tp", "sum", [6, 6, 10, 10]),
        ((), "sum", [16, 16, 16, 16]),
        (["dp", "tp"], "sum", [16, 16, 16, 16]),
        ("dp", "avg", [2, 6, 2, 6]),
        ("tp", "product", [5, 5, 21, 21]),
        ("dp", "min", [1, 5, 1, 5]),
        ("dp", "max", [3, 7, 3, 7]),
        ("tp", "band", [1, 1, 3, 3]),
        ("tp", "bor", [5, 5, 7, 7]),
        ("tp", "bxor", [4, 4, 4, 4]),
    ],
)
def test_reductions(grid: ProcMesh, dims: Any, reduction: str, expected: list[int]) -> None:
    x = mine(grid)
    whole = reduce(x, dims, reduction)
    assert (whole.shape, whole.dtype, whole.mesh) == (x.shape, x.dtype, grid)
    assert shards(whole) == [[n, n] for n in expected]
    assert shards(x) == [[n, n] for n in (1, 5, 3, 7)], "the shards themselves stay"


def test_stacking_and_scattering(grid: ProcMesh) -> None:
    x = mine(grid)
    assert shards(reduce(x, "dp", "stack")) == [[[1, 1], [3, 3]], [[5, 5], [7, 7]]] * 2
    with grid.activate():
        rows = torch.tensor([[1, 2], [3, 4]]) * (1 + grid.rank_tensor("dp"))
    assert shards(reduce(rows, "dp", "sum", scatter=True)) == [[3, 6], [3, 6], [9, 12], [9, 12]]
    assert shards(reduce(rows, "dp", "stack", scatter=True)) == [[[1, 2], [2, 4]]] * 2 + [[[3, 4], [6, 8]]] * 2
    with grid.activate():
        averages: Any = torch.tensor([1.0, 2.0]) * grid.rank_tensor("tp")
    assert shards(averages.reduce("tp", "avg", scatter=True)) == [0.5, 1.0, 0.5, 1.0]


def test_in_place(grid: ProcMesh) -> None:
    x = mine(grid)
    assert reduce_(x, "dp") is x
    x.reduce_("tp", "max")
    assert shards(x) == [[12, 12]] * 4


def test_into_another_tensor(grid: ProcMesh) -> None:
    x, out = mine(grid), mine(grid)
    assert x.reduce("tp", out=out) is out
    assert shards(out) == [[n, n] for n in (6, 6, 10, 10)]
    with pytest.raises(ValueError, match=r"out has shape \(2,\), and the result \(2, 2\)"):
        x.reduce("tp", "stack", out=out)


def test_all_tensors_of_a_tree(grid: ProcMesh) -> None:
    x, y = mine(grid), mine(grid)
    combined = reduce({"a": x, "b": [x + 1, 3]}, "tp")
    assert shards(combined["a"]) == [[n, n] for n in (6, 6, 10, 10)]
    assert shards(combined["b"][0]) == [[n, n] for n in (8, 8, 12, 12)] and combined["b"][1] == 3
    with pytest.raises(TypeError, match=r"a local tensor \(2,\) has no shards to combine"):
        reduce([x, torch.ones(2)], "tp")
    tree = [x, {"y": y}]
    assert reduce_(tree, "dp", "max") is tree
    assert shards(x) == shards(y) == [[n, n] for n in (3, 7, 3, 7)]


def test_on_a_slice(grid: ProcMesh) -> None:
    row = mine(grid).slice_mesh(dp=1)
    assert [inspect(row.reduce("tp"), tp=t).tolist() for t in (0, 1)] == [[10, 10]] * 2
    both = slice_mesh({"a": row, "b": [row + 1, 3]}, tp=1)
    assert isinstance(both["a"], Tensor)
    assert (inspect(both["a"]).tolist(), inspect(both["b"][0]).tolist(), both["b"][1]) == ([7, 7], [8, 8], 3)


@pytest.mark.parametrize("reduction", ["sum", "stack"])
def test_all_of_a_line_go_without_what_one_of_them_could_not_compute(grid: ProcMesh, reduction: str) -> None:
    """It does not come to the collective, and the others would wait for it."""
    with grid.activate():
        x: Any = torch.ones(2) * grid.rank_tensor("tp")
        bad: Any = torch.arange(3.0)[grid.rank_tensor(("dp", "tp")).reshape(1)]  # there is no fourth
    whole, again = reduce(bad, "dp", reduction), reduce(x, "dp")
    for asked in (whole.slice_mesh(dp=0), whole.slice_mesh(dp=1), whole):
        with pytest.raises(RemoteException, match="rank 3: IndexError: index 3 is out of bounds") as caught:
            inspect(asked)
        assert "bad: Any = torch.arange" in str(caught.value)
    assert shards(again) == [[0, 0], [2, 2]] * 2
    x.reduce_("tp")
    assert shards(reduce(x, (), "max")) == [[1, 1]] * 4
    bad.reduce_("tp")
    assert inspect(bad.slice_mesh(dp=0), tp=1).tolist() == [1]
    with pytest.raises(RemoteException, match="rank 3: IndexError"):
        inspect(bad.slice_mesh(dp=1), tp=0)


def test_gradients_are_averaged_as_by_data_parallelism(grid: ProcMesh) -> None:
    with grid.activate():
        weight = torch.ones(2, requires_grad=True)
        (weight * (1.0 + grid.rank_tensor("dp"))).sum().backward()
        assert weight.grad is not None
        reduce_(weight.grad, "dp", "avg")
    assert shards(weight.grad) == [[1.5, 1.5]] * 4
    for combine in (reduce, reduce_):
        with pytest.raises(TypeError, match=r"the tensor requires one \(REQUIRES_GRAD\): detach\(\) it first"):
            combine(weight * 2, "dp")
    assert shards(reduce(weight.detach(), "dp")) == [[2.0, 2.0]] * 4


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        (("pp",), KeyError, "there is no axis 'pp': the mesh has dp, tp"),
        (("dp", "median"), ValueError, "there is no reduction 'median': there are sum, avg, product"),
        ((("dp", "dp"),), ValueError, "an axis is named twice: dp, dp"),
        (((), "stack"), ValueError, "stack goes along one axis, not 2: name one of dp, tp"),
        ((("dp", "tp"), "sum", True), ValueError, "scatter goes along one axis, not 2"),
        (("dp", "sum", True), TypeError, r"the first dimension must be 2, as long as axis 'dp': .* shape \(3,\)"),
    ],
)
def test_mistakes(grid: ProcMesh, arguments: Any, kind: type[Exception], says: str) -> None:
    with grid.activate():
        x = torch.ones(3)
    with pytest.raises(kind, match=says):
        reduce(x, *arguments)
    with pytest.raises(ValueError, match="reduce_ cannot stack"):
        reduce_(x, "dp", "stack")


def test_what_is_reduced_lies_in_order(grid: ProcMesh) -> None:
    """Whatever order its shards had: the program and the ranks must think the same of it."""
    with grid.activate():
        turned: Any = torch.arange(4.0).reshape(2, 2).T
    whole, rows = reduce(turned, "dp"), reduce(turned, "dp", "stack", scatter=True)
    for made in (whole, rows, reduce(turned, "dp", scatter=True)):
        assert made.is_contiguous() and inspect(made).is_contiguous()
    assert inspect(whole.T.flatten()).tolist() == inspect(whole).T.flatten().tolist() == [0, 2, 4, 6]


def test_the_average_of_complex_numbers(grid: ProcMesh) -> None:
    with grid.activate():
        numbers: Any = torch.ones(2, dtype=torch.complex64) * 1j
    assert inspect(reduce(numbers, "dp", "avg")).tolist() == [1j, 1j]
