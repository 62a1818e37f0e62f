"""Torch code of the program, computed on ranks: the same numbers as here, and what is said where that cannot be."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.utils._pytree import tree_leaves

from meshbook.runtime import ActorError, MeshFailure, ProcMesh, SupervisionError, heal, this_host
from meshbook.runtime.rdma import RDMABuffer
from meshbook.runtime.tensors import RemoteException, Tensor, forms, get_active_mesh, inspect, no_mesh, remote
from meshbook.runtime.tensors.dispatch import dispatcher_of
from meshbook.runtime.tensors.forms import NotHere
from meshbook.runtime.wire.codec import EncodeError
from tests.runtime.shards import Holder

pytestmark = pytest.mark.real

_foreach_add: Any = torch.ops.aten._foreach_add.Scalar

SAME: dict[str, Callable[[], Any]] = {
    "arithmetic": lambda: (torch.arange(6.0).reshape(2, 3) * 2 - 1) / 3,
    "numbers on the left": lambda: 2 ** torch.arange(3) - 1 % torch.arange(1, 4),
    "data of the program": lambda: torch.tensor([[1, 2], [3, 4]]) @ torch.tensor([1, 1]),
    "views share memory": lambda: _changed_by_a_view(),
    "in place": lambda: torch.ones(3).add_(1).mul_(torch.arange(3)),
    "several results": lambda: torch.arange(6.0).reshape(2, 3).max(dim=1),
    "lists of tensors": lambda: torch.cat([torch.zeros(2), torch.ones(1)]).split(2),
    "other types": lambda: torch.arange(3).to(torch.bfloat16).float() > 1,
    "out of place, into": lambda: torch.add(torch.ones(2), 1, out=torch.empty(2)),
    "many at once": lambda: _foreach_add([torch.ones(2), torch.zeros(1)], 2.0),
    "advanced indices": lambda: torch.arange(10)[torch.tensor([1, 3])],
    "nothing": lambda: torch.empty(0, 3).sum(),
    "a permutation": lambda: torch.arange(6).reshape(2, 3).T.contiguous().view(-1),
}


def _changed_by_a_view() -> torch.Tensor:
    whole = torch.zeros(3, 2)
    whole[1] = 5
    whole[:, 0] += torch.arange(3)
    return whole


@pytest.mark.parametrize("name", SAME)
def test_ranks_compute_what_would_be_computed_here(grid: ProcMesh, name: str) -> None:
    expected = SAME[name]()
    with grid.activate():
        found = SAME[name]()
    leaves, local = tree_leaves(found), tree_leaves(expected)
    for distributed, plain in zip(leaves, local, strict=True):
        assert isinstance(distributed, Tensor)
        assert (distributed.shape, distributed.dtype, distributed.stride()) == (
            plain.shape,
            plain.dtype,
            plain.stride(),
        )
        assert torch.equal(inspect(distributed, dp=1, tp=1), plain)


@given(st.lists(st.sampled_from(["add", "mul_", "T", "row", "flip", "cat", "sum", "clone"]), max_size=8))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_sequence_of_operations_gives_the_same(grid: ProcMesh, steps: list[str]) -> None:
    def computed() -> list[torch.Tensor]:
        values = [torch.arange(6.0).reshape(2, 3)]
        for step in steps:
            last = values[-1]
            results: dict[str, Callable[[], torch.Tensor]] = {
                "add": lambda last=last: last + 1,
                "mul_": lambda last=last: last.mul_(2),
                "T": lambda last=last: last.T if last.dim() == 2 else last,
                "row": lambda last=last: last[0] if last.dim() and last.shape[0] else last,
                "flip": lambda last=last: last.flip(0) if last.dim() else last,
                "cat": lambda last=last: torch.cat([last, last]) if last.dim() else last,
                "sum": lambda last=last: last.sum(),
                "clone": lambda last=last: last.clone(),
            }
            values.append(results[step]())
        return values  # all of them: what was written to through another name shows

    with grid.activate():
        found = computed()
    assert all(torch.equal(*pair) for pair in zip(inspect(found), computed(), strict=True))


def test_numbers_that_are_equal_but_for_their_type_are_told_apart(grid: ProcMesh) -> None:
    """What an operation gives is remembered by the form of its arguments."""
    with grid.activate():
        whole = torch.ones(2, dtype=torch.int64)
        found = [(whole * factor).dtype for factor in (1, 1.0, True, 1, 1.0)]
        rows = [torch.ones(3, 2)[index].shape for index in (0, slice(0, 1), slice(0, 2))]
    assert found == [torch.int64, torch.float32, torch.int64, torch.int64, torch.float32]
    assert rows == [(2,), (1, 2), (2, 2)]


def test_a_learning_rate_that_changes_is_not_asked_about_again(grid: ProcMesh, monkeypatch: pytest.MonkeyPatch) -> None:
    with grid.activate():
        weight, grad = torch.zeros(2), torch.ones(2)
    monkeypatch.setattr(forms, "_known", {})
    for rate in (0.5, 0.25, 0.125):
        weight.add_(grad, alpha=rate)
        _foreach_add([weight], rate)
    assert len(forms._known) == 2
    assert inspect(weight).tolist() == [0.875, 0.875]
    with grid.activate():
        assert [len(torch.arange(0.0, end)) for end in (2.0, 3.0)] == [2, 3], "there it counts"


def test_ranks_have_shards_of_their_own(grid: ProcMesh) -> None:
    with grid.activate():
        mine = torch.ones(2) * grid.rank_tensor("dp") + 10 * grid.rank_tensor("tp")
        place = grid.rank_tensor(["dp", "tp"])
        each = grid.rank_tensors()
    assert {(d, t): inspect(mine, dp=d, tp=t)[0].item() for d in (0, 1) for t in (0, 1)} == {
        (0, 0): 0,
        (0, 1): 10,
        (1, 0): 1,
        (1, 1): 11,
    }
    assert inspect({"place": place, **each}, dp=1, tp=0) == {"place": 2, "dp": 1, "tp": 0}
    with pytest.raises(KeyError, match="there is no axis 'pp': the mesh has dp, tp"):
        grid.rank_tensor("pp")


def test_a_model_trains_as_it_would_here(grid: ProcMesh) -> None:
    def trained(look: Callable[[Any], torch.Tensor]) -> list[float]:
        torch.manual_seed(7)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.0), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        data = torch.randn(16, 4)
        losses: list[Any] = []
        for _ in range(5):
            loss = (model(data) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return [look(loss).item() for loss in losses]

    with grid.activate():
        found = trained(lambda loss: inspect(loss, dp=1, tp=0))
    assert found == pytest.approx(trained(lambda loss: loss))
    assert found[-1] < found[0]


def test_what_is_active(grid: ProcMesh) -> None:
    with pytest.raises(ValueError, match="no device mesh is active: `with procs"):
        get_active_mesh()
    with grid.activate():
        assert get_active_mesh() == grid
        with no_mesh.activate():
            assert type(torch.ones(1)) is torch.Tensor
            with pytest.raises(ValueError, match="no device mesh is active"):
                get_active_mesh()
        with grid.slice(dp=0).activate():
            assert torch.ones(1).mesh == grid.slice(dp=0)  # pyright: ignore[reportAttributeAccessIssue]
        shard = inspect(torch.ones(2))
        assert (shard + torch.ones_like(shard).sum() if False else shard.sum()).item() == 2, (
            "a shard is computed with here"
        )
    assert type(torch.ones(1)) is torch.Tensor


def test_outside_of_the_block_too(grid: ProcMesh) -> None:
    with grid.activate():
        x = torch.ones(2)
    y = (x + 1).clone()
    assert isinstance(y, Tensor)
    assert inspect(y).tolist() == [2, 2]
    assert repr(y) == "<Tensor (2,) float32 on dp=2,tp=2>"
    assert repr(x.requires_grad_()) == "<Tensor (2,) float32, requires_grad=True on dp=2,tp=2>"


def test_a_copy_is_one_on_the_ranks(grid: ProcMesh) -> None:
    with grid.activate():
        model = nn.Linear(2, 1)
        before = inspect(model.weight)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.weight += 1
    assert isinstance(other.weight, nn.Parameter)
    assert other.weight.requires_grad
    assert torch.equal(inspect(model.weight), before)
    assert torch.equal(inspect(other.weight), before + 1)


def test_slices_of_a_mesh(grid: ProcMesh) -> None:
    with grid.activate():
        x: Any = torch.ones(2) * grid.rank_tensor("dp")
    assert (x.mesh.names, x.mesh(dp=1), x.mesh(dp=1).to_table()) == (
        ("dp", "tp"),
        grid.slice(dp=1),
        "tp  0  1\n    2  3",
    )
    row = x.slice_mesh(dp=1)
    row.add_(5)
    assert (row.mesh.sizes, inspect(row).tolist()) == ({"tp": 2}, [6, 6])
    assert (inspect(x, dp=1, tp=1).tolist(), inspect(x, dp=0, tp=1).tolist()) == ([6, 6], [0, 0]), "the same memory"
    with pytest.raises(TypeError, match=r"meshes cannot be mixed \(WRONG_MESH\): one is on dp=2,tp=2, and one on tp=2"):
        _ = x + row


class TestErrors:
    def test_what_has_failed_spoils_what_depends_on_it_and_nothing_else(self, grid: ProcMesh) -> None:
        with grid.activate():
            x, fine = torch.ones(3), torch.ones(2)
            bad = x[torch.tensor([7])]
            worse = bad * 2
            fine += 1
        with pytest.raises(RemoteException, match=r"rank 0: IndexError: index 7 is out of bounds") as caught:
            inspect([fine, worse])
        assert f"Issued at {__file__}, line " in str(caught.value)
        assert "in test_what_has_failed" in str(caught.value)
        assert inspect([x, fine])[1].tolist() == [2, 2]

    def test_so_is_what_was_to_be_written_to(self, grid: ProcMesh) -> None:
        with grid.activate():
            x = torch.zeros(2)
            x.index_add_(0, torch.tensor([5]), torch.ones(1))
        with pytest.raises(RemoteException, match="rank 0"):
            inspect(x)

    def test_one_rank_s_failure_is_told_whichever_is_asked(self, grid: ProcMesh) -> None:
        with grid.activate():
            x = torch.arange(3)[grid.rank_tensor("dp").reshape(1) * 5]
        with pytest.raises(RemoteException, match="rank 2: IndexError"):
            inspect(x, dp=0, tp=0)

    def test_shapes_that_do_not_fit_are_told_at_once(self, grid: ProcMesh, capfd: pytest.CaptureFixture[str]) -> None:
        with grid.activate(), pytest.raises(RuntimeError, match=r"must have same reduction dim|size mismatch"):
            _ = torch.ones(2, 3) @ torch.ones(2)
        assert capfd.readouterr().err == "", "torch would log thirty lines"

    @pytest.mark.parametrize("ask", [lambda x: x.sum().item(), lambda x: bool(x[0] > 0), lambda x: x.nonzero()])
    def test_python_cannot_ask_for_values(self, grid: ProcMesh, ask: Callable[[Any], Any]) -> None:
        with grid.activate():
            x = torch.ones(3)
            with pytest.raises(DataDependentOutputException) as caught:
                ask(x)
        assert str(caught.value).endswith("which are on its ranks: inspect(tensor) brings a shard")

    @pytest.mark.parametrize(
        "mix", [lambda a, b: a + b, lambda a, b: b * a, lambda a, b: torch.cat([a, b]), lambda a, b: b.copy_(a)]
    )
    def test_local_tensors_are_not_mixed_with_them(self, grid: ProcMesh, mix: Callable[[Any, Any], Any]) -> None:
        local = torch.ones(2)
        with grid.activate():
            distributed = torch.ones(2)
        with pytest.raises(
            TypeError,
            match=r"a local tensor \(2,\) cannot be mixed with distributed ones of dp=2,tp=2 \(LOCAL_TENSOR\)",
        ):
            mix(distributed, local)

    @pytest.mark.parametrize(
        "ask",
        [
            lambda x: x.numpy(),
            lambda x: np.asarray(x),
            lambda x: x.tolist(),
            lambda x: f"{x.sum():.3f}",
            lambda x: x.share_memory_(),  # it killed the process
        ],
    )
    def test_so_does_what_wants_memory_here(self, grid: ProcMesh, ask: Callable[[Any], Any]) -> None:
        with grid.activate():
            x = torch.ones(3)
        with pytest.raises(NotHere, match=r"which are on its ranks: inspect\(tensor\) brings a shard"):
            ask(x)
        assert f"{x}" == repr(x)

    def test_their_memory_cannot_be_lent_from_here(self, grid: ProcMesh) -> None:
        with grid.activate():
            x = torch.ones(3)
        with pytest.raises(ValueError, match=r"there is no memory here behind <Tensor \(3,\)"):
            RDMABuffer(x)

    def test_a_dropped_one_says_where(self, grid: ProcMesh) -> None:
        with grid.activate():
            x = torch.ones(2)
        assert not x.dropped  # pyright: ignore[reportAttributeAccessIssue]
        x.drop()  # pyright: ignore[reportAttributeAccessIssue]
        for use in (lambda: x + 1, lambda: x.sum(), lambda: inspect(x)):
            with pytest.raises(TypeError, match=r"is dropped at .*test_tensor\.py, line \d+, in test_a_dropped"):
                use()

    def test_what_cannot_be(self, grid: ProcMesh) -> None:
        with grid.activate():
            x = torch.ones(2, 1)
            with pytest.raises(TypeError, match="in place: say it without the `_`"):
                x.squeeze_()
            with pytest.raises(TypeError, match="a Generator cannot be an argument"):
                torch.rand(2, generator=torch.Generator())
        with pytest.raises(TypeError, match=r"inspect\(tensor\) brings a shard to keep"):
            pickle.dumps(x)


class TestWhatIsHere:
    """Local tensors come to ranks by `copy_`; single numbers go with anything."""

    def test_a_checkpoint_is_loaded(self, grid: ProcMesh, tmp_path: Path) -> None:
        saved = nn.Linear(2, 1)
        torch.save(saved.state_dict(), tmp_path / "model.pt")
        with grid.activate():
            model = nn.Linear(2, 1)
            with no_mesh.activate():
                state = torch.load(tmp_path / "model.pt")
            model.load_state_dict(state)
            with pytest.raises(TypeError, match=r"say torch.load\(...\) outside of activate\(\), or under"):
                torch.load(tmp_path / "model.pt")
        assert torch.equal(inspect(model.weight, dp=1, tp=1), saved.weight)

    def test_a_copy_is_what_it_was_then(self, grid: ProcMesh) -> None:
        local = torch.ones(2)
        with grid.activate():
            x = torch.zeros(2)
        x[:1].copy_(local[:1])
        local += 1
        assert (inspect(x).tolist(), local.tolist()) == ([1, 0], [2, 2])

    def test_numbers(self, grid: ProcMesh) -> None:
        with grid.activate():
            x = torch.arange(3.0)
        assert inspect(torch.where(x > 1, x, 0.5)).tolist() == [0.5, 0.5, 2]
        mean = inspect(x.mean())
        assert inspect(x - mean).tolist() == [-1, 0, 1]
        with pytest.raises(TypeError, match=r"a local tensor \(\) cannot be mixed"):
            mean.add_(x.sum())


class TestActors:
    def test_each_is_given_its_shard_in_order_with_operations(self, grid: ProcMesh) -> None:
        holders = grid.spawn("holders", Holder)
        with grid.activate():
            x = torch.ones(2) * grid.rank_tensor("tp")
            before = holders.total.call(x)
            x = x + 1
            after = holders.total.call(x, x, scale=0.5)
            x.zero_()
        assert (before.get(20).values(), after.get(20).values()) == ([0, 2, 0, 2], [2, 4, 2, 4])
        holders.stop().get(10)

    def test_those_of_a_slice_are_given_a_slice(self, grid: ProcMesh) -> None:
        holders = grid.spawn("holders", Holder)
        with grid.activate():
            x: Any = torch.ones(2) * grid.rank_tensor("tp")
        with pytest.raises(ActorError, match="tensor of dp=2 tp=2 was sent to actors of dp=2: send them slice_mesh"):
            holders.slice(tp=1).total.call(x).get(20)
        assert holders.slice(tp=1).total.call(x.slice_mesh(tp=1)).get(20).values() == [2, 2]
        holders.stop().get(10)

    def test_those_of_a_call_that_cannot_be_sent_are_forgotten(self, grid: ProcMesh) -> None:
        holders = grid.spawn("holders", Holder)
        gc.collect()
        with grid.activate():
            x = torch.ones(2)
        fetch_from_all(x)
        before = holders.num_values.call().get(20).values()
        with pytest.raises(EncodeError, match=r"_thread\.lock"):
            holders.total.call(x, cast("Any", threading.Lock()))
        fetch_from_all(x)
        after = holders.num_values.call().get(20).values()
        assert all(now <= then for now, then in zip(after, before, strict=True)), (before, after)
        holders.stop().get(10)

    def test_one_that_has_failed_is_told(self, grid: ProcMesh) -> None:
        holders = grid.spawn("holders", Holder)
        with grid.activate():
            bad = torch.ones(3)[torch.tensor([7])]
        with pytest.raises(ActorError, match="a distributed tensor was not computed: IndexError: index 7"):
            holders.total.call(bad).get(20)
        holders.stop().get(10)

    def test_ranks_forget_what_nobody_refers_to(self, grid: ProcMesh) -> None:
        holders = grid.spawn("holders", Holder)
        gc.collect()
        with grid.activate():
            one = torch.ones(1)  # it lives on: when ranks are told to forget a value is not said
            fetch_from_all(one)
            before = holders.num_values.call().get(20).values()
            x = torch.ones(10)
            for _ in range(250):
                x = x + 1
            inspect(x)
            del x
            fetch_from_all(one)
        after = holders.num_values.call().get(20).values()
        assert all(now <= then for now, then in zip(after, before, strict=True)), (before, after)
        holders.stop().get(10)


def fetch_from_all(tensor: torch.Tensor) -> None:
    """Wait until all ranks have come so far: a call of an actor does not wait for that."""
    for dp in (0, 1):
        for tp in (0, 1):
            inspect(tensor, dp=dp, tp=tp)


def test_a_rank_that_dies_is_told(process_stage: Any) -> None:
    procs = process_stage.owned(this_host().spawn_procs({"r": 2}))
    with procs.activate():
        x = torch.ones(1)
        inspect(x)
    procs.roster.kill([1])
    with pytest.raises(SupervisionError, match=r"rank 1 .*killed by SIGKILL"):
        inspect(x + 1, r=0)
    fault: MeshFailure = process_stage.faults.get(timeout=10)
    assert "killed by SIGKILL" in fault.report()


def test_what_a_rank_had_before_it_was_replaced_is_gone(process_stage: Any) -> None:
    procs = process_stage.owned(this_host().spawn_procs({"r": 2}))
    with procs.activate():
        x = torch.ones(1)
        inspect(x)
    procs.roster.kill([1])
    assert "killed by SIGKILL" in process_stage.faults.get(timeout=10).report()
    with pytest.raises(SupervisionError, match="killed by SIGKILL"):
        inspect(x + 1)
    heal(procs)
    with pytest.raises(RemoteException, match="rank 1: LookupError: its shard has gone with the process") as caught:
        inspect(x)
    assert "\n" not in str(caught.value)
    with procs.activate():
        assert inspect(torch.ones(2) + 1, r=1).tolist() == [2, 2]


def test_a_write_that_fails_spoils_all_views_of_the_memory(grid: ProcMesh) -> None:
    with grid.activate():
        base, other = torch.zeros(2, 1), torch.zeros(2)
        view = base.flatten()
        base[0] = torch.ones(3)[torch.tensor([7])]
    for spoilt in (base, view):
        with pytest.raises(RemoteException, match="index 7 is out of bounds"):
            inspect(spoilt)
    assert inspect(other).tolist() == [0, 0]


def test_data_takes_the_place_of_the_values(grid: ProcMesh) -> None:
    with grid.activate():
        weight = nn.Parameter(torch.ones(2))
        weight.data = weight.data * 5
        model = nn.Linear(2, 2).double()
        weight.sum().backward()
    assert (inspect(weight).tolist(), inspect(weight.grad).tolist()) == ([5, 5], [1, 1])
    assert model.weight.dtype == inspect(model.weight).dtype == torch.float64
    with pytest.raises(TypeError, match="copy_\\(\\) brings others"):
        weight.data = torch.ones(2)


def test_the_default_type_of_the_program_holds_on_the_ranks(grid: ProcMesh) -> None:
    def made() -> list[Any]:
        return [torch.ones(3), torch.arange(3) / 2, torch.tensor([1, 2]).sqrt()]

    with grid.activate():
        torch.set_default_dtype(torch.float64)
        try:
            wide = made()
        finally:
            torch.set_default_dtype(torch.float32)
        for tensors, dtype in ((wide, torch.float64), (made(), torch.float32)):
            assert {each.dtype for each in [*tensors, *inspect(tensors)]} == {dtype}


def test_parts_of_conjugated_numbers(grid: ProcMesh) -> None:
    with grid.activate():
        turned = (torch.ones(2, dtype=torch.complex64) * 1j).conj()
    assert inspect(turned.imag).tolist() == [-1, -1]
    assert inspect(turned.resolve_conj() * 1j).tolist() == [1, 1]


def test_what_is_issued_goes_out_though_nobody_waits(
    grid: ProcMesh, tmp_path: Path, until: Callable[..., None]
) -> None:
    def leave_a_mark(x: torch.Tensor) -> None:
        (tmp_path / "mark").touch()

    dispatcher = dispatcher_of(grid)
    with grid.activate():
        x: Any = torch.ones(2)
        inspect(x)
        remote(leave_a_mark, propagate="inspect")(x)
    until((tmp_path / "mark").exists, 1.5)
    del x
    gc.collect()
    until(lambda: not (dispatcher._dropped or dispatcher._ops), 1.5)
