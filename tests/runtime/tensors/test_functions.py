"""Functions of the program that run on ranks with their shards."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch

from meshbook.runtime import ActorError, ProcMesh
from meshbook.runtime.tensors import (
    OpaqueRef,
    RemoteException,
    Tensor,
    call_on_shard_and_fetch,
    inspect,
    reduce,
    remote,
)
from tests.runtime.shards import Holder, clear, norms, shapes_of_norms

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage

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


def test_it_may_say_itself_what_it_gives(grid: ProcMesh) -> None:
    with grid.activate():
        x = torch.ones(2) * grid.rank_tensor("dp")
        assert inspect(remote(norms, propagate="cached")(x)["norm"], dp=1, tp=0).tolist() == pytest.approx([2**0.5])
        assert remote(clear, propagate="inspect")(x) is None
        assert inspect(x, dp=1, tp=1).tolist() == [0, 0]
        with pytest.raises(TypeError, match="remote: propagate='mocked' does not say what it gives"):
            remote(norms, propagate="mocked")(x)


def halves(ref: OpaqueRef, x: torch.Tensor) -> Any:
    ref.value.append(len(x))
    return {"first": x[: len(x) // 2], "rest": [x[len(x) // 2 :].float(), None]}


def test_what_it_gives_is_learnt_from_its_first_call(grid: ProcMesh) -> None:
    cut = remote(halves)
    with grid.activate():
        counts = remote(lambda: OpaqueRef([]))()
        assert (repr(counts), repr(OpaqueRef([1]))) == ("<OpaqueRef <Tensor () int64 on dp=2,tp=2>>", "OpaqueRef([1])")
        x = torch.arange(4)
        for step in range(3):
            parts = cut(counts, x + step)
            assert isinstance(parts["first"], Tensor) and parts["rest"][1] is None
            assert (inspect(parts["first"]).tolist(), inspect(parts["rest"][0]).dtype) == (
                [step, step + 1],
                torch.float,
            )
        assert inspect(cut(counts, torch.arange(5))["rest"][0]).tolist() == [2, 3, 4]
        seen = remote(lambda ref: ref.value).call(counts).get().values()
    assert seen == [[4, 4, 4, 5]] * 4, "each call was made once"


def test_what_is_not_made_of_tensors_is_waited_for_each_time(grid: ProcMesh) -> None:
    total = remote(lambda x: (float(x.sum()), "done"))
    place = grid.rank_tensor("dp")
    assert [total(place + plus) for plus in (0, 1)] == [(0.0, "done"), (1.0, "done")]
    with pytest.raises(
        RemoteException, match=r"rank \d: ZeroDivisionError: division by zero\nIssued at .*functions.py"
    ):
        remote(lambda x: 1 / 0)(place)


def test_what_cannot_be_called_is_told_in_a_line(grid: ProcMesh) -> None:
    with grid.activate():
        x = torch.ones(2)
    for use, says in (
        (lambda: remote("no.such.thing")(x), "there is no function 'no.such.thing' here: No module named 'no'"),
        (lambda: remote("tests.runtime.shards.nothing")(x), "module 'tests.runtime.shards' has no attribute 'nothing'"),
        (lambda: remote(norms)(x, 1, 2, 3), r"TypeError: norms\(\) takes"),
    ):
        with pytest.raises(RemoteException, match=says) as caught:
            use()
        assert "Traceback" not in str(caught.value)


def test_as_a_decorator(grid: ProcMesh) -> None:
    @remote(propagate=lambda x: x)
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @remote
    def total(x: torch.Tensor) -> float:
        return float(x.sum())

    with grid.activate():
        x = doubled(torch.ones(2))
    assert inspect(x).tolist() == [2, 2]
    assert total.call(x).get(20).values() == [4] * 4


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


class TestAdverbs:
    """What a function gives comes here, computed after what was issued before."""

    def test_from_all_ranks_or_one(self, grid: ProcMesh) -> None:
        total = remote(lambda x, times: float(x.sum()) * times)
        with grid.activate():
            x: Any = torch.ones(2) * grid.rank_tensor("dp")
        x += 1
        assert total.call(x, times=10).get(20).values() == [20, 20, 40, 40]
        x.zero_()
        assert sorted(each.get(20) for each in total.stream(x.slice_mesh(tp=0), 1)) == [0, 0]
        x += 3
        assert total.choose(x, 1).get(20) == 6
        assert total.call_one(x.slice_mesh(dp=1, tp=1), 1).get(20) == 6
        with pytest.raises(ValueError, match="call_one requires exactly 1 actor, but mesh has 4"):
            total.call_one(x, 1)

    def test_tensors_come_as_they_were(self, grid: ProcMesh) -> None:
        with grid.activate():
            x = torch.ones(10_000)
            came = remote("tests.runtime.shards.itself").call(x)
        x.zero_()
        assert came.get(20).slice(dp=1, tp=1).item().sum() == 10_000

    def test_distributed_or_not_at_all(self, grid: ProcMesh) -> None:
        with grid.activate():
            x = torch.ones(2)
        assert inspect(remote(norms, propagate=shapes_of_norms).rref(x, power=1.0)["norm"]) == 2
        assert remote(clear).broadcast(x) is None
        assert inspect(x).tolist() == [0, 0]
        remote("math.nothing").broadcast(x)
        assert inspect(x + 1).tolist() == [1, 1]

    def test_what_it_raises_and_what_it_cannot_be_given(self, grid: ProcMesh) -> None:
        with grid.activate():
            x: Any = torch.ones(2)
            bad: Any = x[torch.tensor([7])]
        with pytest.raises(ActorError, match="has no attribute 'nothing'"):
            remote("math.nothing").call(x).get(20)
        with pytest.raises(ActorError, match="a distributed tensor was not computed: IndexError: index 7"):
            remote(clear).call(bad).get(20)
        assert inspect(x).tolist() == [1, 1]


def test_mistakes(grid: ProcMesh) -> None:
    for call in (remote(clear), remote(clear).call, remote(clear).broadcast):
        with pytest.raises(ValueError, match="on which ranks"):
            call(3)
    with pytest.raises(ValueError, match=r"'clear' names no function: say 'module\.name'"):
        remote("clear")


def test_ranks_import_what_they_need_alone(process_stage: Stage) -> None:
    procs = process_stage.procs({"r": 1})
    with procs.activate():
        x = procs.rank_tensor("r") + torch.ones(2)
    kept = remote(lambda t: t.clone(), propagate=lambda t: t)(reduce(x).to_mesh(procs))
    loaded = remote(lambda t: "meshbook.runtime.tensors.tensor" in sys.modules)
    assert loaded.call(kept).get().values() == [False]


def test_the_compiler_comes_with_the_first_fake() -> None:
    """A module of the user's may import all of distributed tensors on a rank; the compiler is a second more."""
    program = "import sys, meshbook.runtime.tensors.tensor as _\nprint('torch._dynamo' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


class Settings:
    """An argument of the user's own kind."""

    factor = 3.0


def scaled_sum(tensor: torch.Tensor, group: Any, settings: Settings) -> torch.Tensor:
    """The sum over the ranks of a group, times a factor."""
    total = tensor.clone()
    torch.distributed.all_reduce(total, group=group)
    return total * settings.factor


def test_a_function_is_given_process_groups_and_objects_of_any_kind(grid: ProcMesh) -> None:
    place = grid.rank_tensor(("dp", "tp"))
    group = grid.process_group("tp")
    assert (group.size(), grid.process_group().size(), repr(group)) == (
        2,
        4,
        "<RemoteProcessGroup along tp, of 2 ranks>",
    )
    settings = Settings()
    total = remote(scaled_sum, propagate=lambda tensor, *_: tensor.float())(place, group, settings)
    settings.factor = 0.0
    assert [inspect(total, dp=dp, tp=0).item() for dp in (0, 1)] == [3.0, 15.0]
    with grid.activate():
        assert remote(lambda group: group.size()).call(grid.process_group()).get().values() == [4] * 4
    with pytest.raises(KeyError, match="there is no axis 'x': the mesh has dp, tp"):
        grid.process_group("x")


def test_functions_with_a_process_group_run_on_all_of_its_ranks_or_on_none(grid: ProcMesh) -> None:
    with grid.activate():
        bad = torch.arange(3)[grid.rank_tensor(("dp", "tp")).reshape(1)]  # there is no fourth
    group = grid.process_group("tp")
    run = remote(scaled_sum, propagate=lambda tensor, *_: tensor.float())
    total: Any = run(bad, group, Settings())
    assert inspect(total.slice_mesh(dp=0), tp=1).tolist() == [3.0]
    with pytest.raises(RemoteException, match="rank 3: IndexError: index 3 is out of bounds"):
        inspect(total.slice_mesh(dp=1), tp=0)
    with pytest.raises(ActorError, match="was not computed: IndexError: index 3"):
        run.call(bad, group, Settings()).get(20)
    assert (
        run.call(total.slice_mesh(dp=0), grid.slice(dp=0).process_group("tp"), Settings()).get(20).values() == [18] * 2
    )


def counted(ref: OpaqueRef, step: torch.Tensor) -> int:
    """How often it was called with this."""
    ref.value.append(float(step))
    return len(ref.value)


def test_objects_stay_on_their_ranks_between_functions(grid: ProcMesh) -> None:
    with grid.activate():
        made = remote(lambda: OpaqueRef([]), propagate=lambda: OpaqueRef())()
        step = grid.rank_tensor("dp")
    for count in (1, 2):
        assert remote(counted).call(made, step).get().values() == [count] * 4
    assert remote(lambda ref: ref.value).call(made).get().values() == [[0.0] * 2] * 2 + [[1.0] * 2] * 2
    with pytest.raises(RuntimeError, match="the value is on the ranks"):
        _ = made.value


def test_one_rank_alone_computes_what_is_fetched_from_it(grid: ProcMesh) -> None:
    place = grid.rank_tensor(("dp", "tp"))
    total = remote(lambda x, plus=0: int(x) + plus)
    assert call_on_shard_and_fetch(total, place).get() == 0
    assert call_on_shard_and_fetch(total, place, shard={"dp": 1, "tp": 0}, plus=40).get() == 42
    with grid.activate():
        assert call_on_shard_and_fetch(lambda: 7, shard={"dp": 1, "tp": 1}).get() == 7
    holders = grid.spawn("holders", Holder)
    assert call_on_shard_and_fetch(holders.total, place, shard={"dp": 1, "tp": 1}, scale=2.0).get() == 6.0
    holders.stop().get()
    with pytest.raises(ValueError, match="Missing key 'tp' in shard map"):
        call_on_shard_and_fetch(total, place, shard={"dp": 1})
