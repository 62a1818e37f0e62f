"""Tensors that go from one mesh to another: what arrives, in which order, and what is told when nothing can."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import operator
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from meshbook.runtime import ProcMesh, SupervisionError, heal
from meshbook.runtime.tensors import RemoteException, Tensor, dispatch, inspect, remote
from meshbook.runtime.tensors import to_mesh as to_mesh_typed
from meshbook.runtime.tensors.dispatch import dispatcher_of
from meshbook.runtime.wire.codec import EncodeError
from tests.runtime.shards import Holder
from tests.runtime.tensors.test_brake import nap, press

pytestmark = pytest.mark.real

to_mesh: Any = to_mesh_typed  # to a type checker, what torch makes on a mesh is a plain tensor


@pytest.fixture
def other(process_stage: Any) -> ProcMesh:
    """Another mesh of the axes of a row of the grid."""
    return process_stage.shared(tp=2)


@pytest.fixture
def pair(process_stage: Any) -> tuple[ProcMesh, ProcMesh]:
    """Two meshes of this test's own, of which ranks may die."""
    return process_stage.procs({"r": 2}), process_stage.procs({"r": 2})


def mine(mesh: Any) -> Any:
    """Twice the rank's index on `tp`, plus 1."""
    with mesh.activate():
        return torch.ones(2) + mesh.rank_tensor("tp")


def killed(stage: Any) -> None:
    """Take note of the death of a rank that was killed."""
    assert "killed by SIGKILL" in stage.faults.get(timeout=10).report()


def test_each_shard_goes_to_the_same_place(grid: ProcMesh, other: ProcMesh) -> None:
    row = mine(grid).slice_mesh(dp=1)
    moved = row.to_mesh(other)
    assert (type(moved), moved.mesh, moved.shape, moved.dtype) == (Tensor, other, row.shape, row.dtype)
    assert [inspect(moved, tp=tp).tolist() for tp in (0, 1)] == [[1, 1], [2, 2]]
    back = (moved * 10).to_mesh(row.mesh) + row
    assert [inspect(back, tp=tp).tolist() for tp in (0, 1)] == [[11, 11], [22, 22]]


def test_between_slices_also_such_that_overlap(grid: ProcMesh) -> None:
    x = mine(grid)
    with grid.activate():
        x = x + 10 * grid.rank_tensor("dp")
    low, high = x.slice_mesh(dp=0), x.slice_mesh(dp=1)
    assert [inspect(high.to_mesh(low.mesh) - low, tp=tp).tolist() for tp in (0, 1)] == [[10, 10]] * 2
    column = low.slice_mesh(tp=slice(1, 2)).to_mesh(grid.slice(dp=0, tp=slice(0, 1)))
    assert inspect(column, tp=0).tolist() == [2, 2]
    itself = x.slice_mesh(tp=0, dp=0).to_mesh(grid.slice(dp=1, tp=1)).to_mesh(grid.slice(dp=0, tp=0))
    assert inspect(itself).tolist() == [1, 1]


def test_along_axes_that_are_new_all_ranks_get_it(grid: ProcMesh, other: ProcMesh) -> None:
    x = mine(grid)
    with grid.activate():
        x = x + 10 * grid.rank_tensor("dp")
    every: Any = [(dp, tp) for dp in (0, 1) for tp in (0, 1)]
    for moved, said in (
        (x.slice_mesh(dp=1).to_mesh(grid), [11, 12, 11, 12]),
        (x.slice_mesh(tp=1).to_mesh(grid), [2, 2, 12, 12]),
        (x.slice_mesh(dp=0, tp=1).to_mesh(grid), [2, 2, 2, 2]),
        (mine(other).to_mesh(grid), [1, 2, 1, 2]),
    ):
        assert moved.mesh == grid
        assert [inspect(moved, dp=dp, tp=tp)[0].item() for dp, tp in every] == said
    row = x.slice_mesh(dp=1)
    with row.mesh.activate():
        bad = row[torch.tensor([7])]
    with pytest.raises(RemoteException, match="rank 0: IndexError: index 7"):
        inspect(bad.to_mesh(grid), dp=0, tp=0)


def test_gradients_of_all_who_got_it_are_added(grid: ProcMesh) -> None:
    with grid.slice(dp=0).activate():
        weight = torch.ones(2, requires_grad=True)
    (to_mesh(weight, grid) * (1.0 + grid.rank_tensor("dp") + 10 * grid.rank_tensor("tp"))).sum().backward()
    assert [inspect(weight.grad, tp=tp).tolist() for tp in (0, 1)] == [[3, 3], [23, 23]]


def test_all_of_a_structure(grid: ProcMesh, other: ProcMesh) -> None:
    row = mine(grid).slice_mesh(dp=0)
    moved = to_mesh({"a": row, "b": [row + 1, 3]}, other)
    assert [inspect(each, tp=1).tolist() for each in (moved["a"], moved["b"][0])] == [[2, 2], [3, 3]]
    assert (moved["b"][1], row.to_mesh(row.mesh) is row) == (3, True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, torch.complex64, torch.int8])
def test_any_type_and_layout(grid: ProcMesh, other: ProcMesh, dtype: torch.dtype) -> None:
    with grid.slice(dp=0).activate():
        x: Any = torch.arange(4096).reshape(64, 64).to(dtype)
    for each in (x, x.T, x[1:, ::3], x[:0], x[3, 3]):
        moved = each.to_mesh(other)
        assert (moved.shape, moved.dtype, moved.is_contiguous()) == (each.shape, dtype, True)
        assert torch.equal(inspect(moved, tp=1), inspect(each, tp=1))
        assert inspect(moved.reshape(-1)).shape == (each.numel(),)


def test_it_is_what_it_was_when_it_was_sent(grid: ProcMesh, other: ProcMesh) -> None:
    with grid.slice(dp=0).activate():
        x: Any = torch.zeros(100_000)
    moved: list[Any] = []
    for _ in range(20):
        moved.append(x.to_mesh(other))
        x += 1
        moved[-1] *= 2  # memory of its own, too
    assert [inspect(each.max(), tp=1).item() for each in moved] == [2 * i for i in range(20)]
    assert inspect(x.min()).item() == 20


def test_meshes_that_send_to_each_other(grid: ProcMesh, other: ProcMesh) -> None:
    x: Any = mine(grid).slice_mesh(dp=0)
    with other.activate():
        y: Any = torch.zeros(2)
    for _ in range(150):
        x, y = y.to_mesh(x.mesh) + 1, x.to_mesh(other) + 1
    assert [inspect(each, tp=1).tolist() for each in (x, y)] == [[152, 152], [150, 150]]


def test_on_every_engine(bench: Any) -> None:
    first, second = bench.up({"r": 2}), bench.up({"r": 2})
    with first.activate():
        x: Any = torch.ones(300_000) + first.rank_tensor("r")
        bad: Any = x[torch.tensor([1_000_000])]
    moved = x.to_mesh(second)
    x += 1
    assert [inspect(each.max(), r=1).item() for each in (moved, moved.to_mesh(first) + x)] == [2, 5]
    with pytest.raises(RemoteException, match="rank 0: IndexError"):
        inspect(bad.to_mesh(second))


def test_an_actor_is_given_its_shard(grid: ProcMesh, other: ProcMesh) -> None:
    holders = other.spawn("holders", Holder)
    moved = mine(grid).slice_mesh(dp=0).to_mesh(other)
    assert holders.total.call(moved).get(20).values() == [2, 4]
    holders.stop().get(10)


def test_ranks_keep_nothing_of_it(grid: ProcMesh, other: ProcMesh, until: Any) -> None:
    holders = other.spawn("holders", Holder)
    x = mine(grid).slice_mesh(dp=0)
    before = holders.num_values.call().get(20).values()
    for _ in range(10):
        inspect(x.to_mesh(other))
    until(lambda: all(map(operator.le, holders.num_values.call().get(20).values(), before)))
    assert holders.num_arrived.call().get(20).values() == [0, 0]
    holders.stop().get(10)


def test_two_stages_train_as_one_process_would(grid: ProcMesh, other: ProcMesh) -> None:
    torch.manual_seed(0)
    data, first, second = torch.randn(8, 3), nn.Linear(3, 4), nn.Linear(4, 1)
    stages: list[Any] = []
    for stage, mesh in ((first, grid.slice(dp=0)), (second, other)):
        with mesh.activate():
            copied: Any = nn.Linear(stage.in_features, stage.out_features)
        copied.load_state_dict(stage.state_dict())
        stages.append(copied)
    with grid.slice(dp=0).activate():
        batch: Any = torch.zeros(8, 3)
    batch.copy_(data)

    for parts, move in (((first, second), lambda x: x), (stages, lambda x: x.to_mesh(other))):
        optimizer = torch.optim.Adam([p for part in parts for p in part.parameters()], 0.1)
        for _ in range(3):
            hidden: Any = parts[0](data if parts[0] is first else batch).relu()
            optimizer.zero_grad()
            parts[1](move(hidden)).square().mean().backward()
            optimizer.step()
    for plain, moved in zip((first, second), stages, strict=True):
        assert torch.allclose(plain.weight, inspect(moved.weight, tp=1), atol=1e-6)


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        ({"dp": 2}, r"a tensor of tp=2 cannot go to a mesh of dp=2: .* the mesh must have tp=2, as a slice\(\) of one"),
        ({"dp": 2, "tp": 2}, "a tensor of tp=2 cannot go to a mesh of one rank"),
    ],
)
def test_the_meshes_must_have_the_same_axes(grid: ProcMesh, axes: dict[str, int], says: str) -> None:
    row = mine(grid).slice_mesh(dp=0)
    target = {0: grid, 1: grid.slice(tp=0), 2: grid.slice(dp=0, tp=0)}[len(axes)]
    with pytest.raises(ValueError, match=says) as caught:
        row.to_mesh(target)
    assert "\n" not in str(caught.value)
    with pytest.raises(
        TypeError, match=r"to_mesh takes processes: procs\.slice\(...\), tensor\.mesh, m\.procs of a notebook"
    ):
        row.to_mesh("tp")


class TestErrors:
    def test_what_has_failed_before_is_told_with_its_own_line(self, grid: ProcMesh, other: ProcMesh) -> None:
        with grid.slice(dp=0).activate():
            x: Any = torch.ones(3)
            bad: Any = x[torch.tensor([7])]
        worse = bad.to_mesh(other) + 1
        fine = x.to_mesh(other) + 1
        with pytest.raises(RemoteException, match="rank 0: IndexError: index 7 is out of bounds") as caught:
            inspect(worse)
        assert "bad: Any = x[torch.tensor([7])]" in str(caught.value)
        assert inspect(fine).tolist() == [2, 2, 2]

    def test_what_cannot_be_sent_is_told(self, grid: ProcMesh, other: ProcMesh) -> None:
        with grid.slice(dp=0).activate():
            x: Any = torch.ones(2)
            sparse: Any = remote(torch.Tensor.to_sparse_csr, propagate=lambda x: x)(x.reshape(1, 2))
        with pytest.raises(RemoteException, match="rank 0: ") as caught:
            inspect(sparse.to_mesh(other))
        assert "inspect(sparse.to_mesh(other))" in str(caught.value)
        assert inspect(x.to_mesh(other)).tolist() == [1, 1]

    def test_what_stands_beside_something_that_cannot_be_sent_is_told(
        self, grid: ProcMesh, other: ProcMesh, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(dispatch, "LINGER", 60.0)
        lock = threading.Lock()
        with grid.slice(dp=0).activate():
            x: Any = torch.ones(2)
        inspect(x)
        remote(lambda x: lock, propagate="inspect")(x)
        moved = x.to_mesh(other)
        with pytest.raises(EncodeError, match=r"is a _thread\.lock"):
            inspect(x)
        assert inspect(moved).tolist() == [1, 1]
        assert inspect(x.to_mesh(other)).tolist() == [1, 1]

    def test_nothing_else_is_lost_by_what_cannot_be_sent(
        self, grid: ProcMesh, monkeypatch: pytest.MonkeyPatch, until: Any
    ) -> None:
        monkeypatch.setattr(dispatch, "LINGER", 0.0)
        lock = threading.Lock()
        with grid.slice(dp=0).activate():
            x: Any = torch.ones(2)
            unsent: Any = remote(lambda x: (lock, x)[1], propagate=lambda x: x)(x)
            y: Any = x + 1
        sent = dispatch.dispatcher_of(grid)
        until(lambda: not sent._ops)  # by the loop, which has nobody to raise it to
        assert inspect(y).tolist() == [2, 2]
        with pytest.raises(
            RemoteException, match=r"rank 0: RuntimeError: EncodeError: cannot pickle: .* a _thread\.lock"
        ):
            inspect(unsent)

    def test_a_source_whose_worker_has_ended(self, process_stage: Any, pair: tuple[ProcMesh, ProcMesh]) -> None:
        source, target = pair
        with source.activate():
            x: Any = torch.ones(2)
        remote("sys.exit", propagate="inspect")(x.slice_mesh(r=1))
        with pytest.raises(RemoteException, match=r"rank 1: SupervisionError: .*\.TensorWorker tensors.* have failed"):
            inspect(x.to_mesh(target))
        assert "TensorWorker" in process_stage.faults.get(timeout=10).report()

    def test_a_source_that_is_dead(self, process_stage: Any, pair: tuple[ProcMesh, ProcMesh]) -> None:
        source, target = pair
        with source.activate():
            x: Any = torch.ones(2)
        inspect(x.to_mesh(target))
        source.roster.kill([1])
        killed(process_stage)
        moved = x.to_mesh(target)
        with pytest.raises(RemoteException, match=r"rank 1: SupervisionError: .* failed, rank 1 .*killed by SIGKILL"):
            inspect(moved)
        assert inspect(moved.slice_mesh(r=0)).tolist() == [1, 1]
        heal(source)
        with pytest.raises(RemoteException, match="rank 1: LookupError: its shard has gone with the process"):
            inspect(x.to_mesh(target))
        with source.activate():
            x = torch.ones(2)
        assert inspect(x.to_mesh(target), r=1).tolist() == [1, 1]

    def test_a_source_that_dies_while_it_is_waited_for(
        self, process_stage: Any, pair: tuple[ProcMesh, ProcMesh], tmp_path: Path, until: Any
    ) -> None:
        (source, target), gate = pair, tmp_path / "gate"
        with source.activate():
            x: Any = torch.ones(2)
        remote(nap, propagate="inspect")(x.slice_mesh(r=1), str(gate))
        moved = x.to_mesh(target)
        until(gate.exists)
        source.roster.kill([1])
        killed(process_stage)
        with pytest.raises(RemoteException, match=r"rank 1: SupervisionError: .*killed by SIGKILL"):
            inspect(moved)
        assert inspect(moved.slice_mesh(r=0)).tolist() == [1, 1]

    def test_a_target_that_is_dead(self, process_stage: Any, pair: tuple[ProcMesh, ProcMesh]) -> None:
        source, target = pair
        with source.activate():
            x: Any = torch.ones(2)
        inspect(x.to_mesh(target))
        target.roster.kill([1])
        killed(process_stage)
        with pytest.raises(SupervisionError, match="killed by SIGKILL"):
            inspect(x.to_mesh(target))
        assert inspect(x.slice_mesh(r=0).to_mesh(target.slice(r=0))).tolist() == [1, 1]
        assert inspect(x + 1, r=1).tolist() == [2, 2], "who has sent to it goes on"
        heal(target)
        assert inspect(x.to_mesh(target), r=1).tolist() == [1, 1]

    @pytest.mark.parametrize("gone", ["source", "target"])
    def test_a_mesh_that_is_taken_down_while_it_is_waited_for(
        self, pair: tuple[ProcMesh, ProcMesh], tmp_path: Path, until: Any, gone: str
    ) -> None:
        (source, target), gate = pair, tmp_path / "gate"
        with source.activate():
            x: Any = torch.ones(2)
        remote(nap, propagate="inspect")(x, str(gate))
        moved = x.to_mesh(target)
        until(gate.exists)
        (source if gone == "source" else target).stop().get(20)
        with pytest.raises((RemoteException, SupervisionError), match=r"stopped|taken down|gone"):
            inspect(moved)
        gate.unlink(missing_ok=True)


@pytest.mark.parametrize("asked", ["source", "target"])
def test_ctrl_c_frees_both_meshes(grid: ProcMesh, other: ProcMesh, tmp_path: Path, until: Any, asked: str) -> None:
    gates = [tmp_path / "0", tmp_path / "1"]
    x: Any = mine(grid).slice_mesh(dp=0)
    sent_before = x.to_mesh(other)
    for tp, gate in enumerate(gates):
        remote(nap, propagate="inspect")(x.slice_mesh(tp=tp), str(gate))
    total = sent_before + 1
    moved = x.to_mesh(other)
    later = moved + 1
    back = later.to_mesh(x.mesh) + 1
    waiting = dispatcher_of(grid)._reactor._waiting
    idents = {threading.main_thread().ident}
    presser = press(lambda: until(lambda: all(gate.exists() for gate in gates) and idents <= waiting))
    with pytest.raises(KeyboardInterrupt):
        inspect(later if asked == "target" else back)
    presser.join()
    for gate in gates:
        gate.unlink()
    for left_out in (moved, back):
        with pytest.raises(RemoteException, match="KeyboardInterrupt: it was not computed"):
            inspect(left_out)
    assert inspect(total, tp=1).tolist() == [3, 3]
    assert inspect((x.to_mesh(other) + 1).to_mesh(x.mesh), tp=1).tolist() == [3, 3], "and they go on"
