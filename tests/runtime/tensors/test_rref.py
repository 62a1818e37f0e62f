"""Endpoints whose results are distributed tensors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import torch

from meshbook.runtime import Actor, ProcMesh, current_rank, endpoint
from meshbook.runtime.tensors import RemoteException, Tensor, inspect

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tests.runtime.conftest import Stage

pytestmark = pytest.mark.real


class Scaler(Actor):
    def __init__(self) -> None:
        self.by = torch.ones(2)
        self.gradual = torch.ones(2, requires_grad=True)

    @endpoint(propagate=lambda x: x)
    def scale(self, x: torch.Tensor) -> Any:
        return x * self.by

    @endpoint(propagate="inspect")
    def grow(self, by: torch.Tensor) -> None:
        self.by += by

    @endpoint(propagate=lambda: torch.empty(2))
    def own(self) -> Any:
        return self.by

    @endpoint(propagate=lambda x: {"sum": x.sum(), "both": (x, 3)})
    def several(self, x: torch.Tensor) -> Any:
        return {"sum": x.sum() * self.gradual.sum(), "both": (x + 1, 3)}

    @endpoint(propagate=lambda x: x)
    def fail_on_last(self, x: torch.Tensor) -> Any:
        if current_rank().rank == 3:
            raise ValueError("not today")
        return x

    @endpoint(propagate=lambda x: x)
    def end_on_last(self, x: torch.Tensor) -> Any:
        if current_rank().rank == 3:
            raise SystemExit(2)
        return x

    @endpoint(propagate=lambda x: (x, x))
    def say_two(self, x: torch.Tensor) -> Any:
        return x

    @endpoint
    def say_nothing(self, x: torch.Tensor) -> Any:
        return x

    @endpoint
    def sum_of_own(self) -> float:
        return float(self.by.sum())


class AsyncScaler(Actor):
    @endpoint(propagate=lambda x: x)
    async def scale(self, x: torch.Tensor) -> Any:
        await asyncio.sleep(0)
        return x * 10


@pytest.fixture
def scalers(grid: ProcMesh) -> Generator[Any]:
    actors = grid.spawn("scalers", Scaler)
    yield actors
    actors.stop().get(10)


@pytest.fixture
def ranks(grid: ProcMesh) -> Any:
    """The rank of each, twice."""
    with grid.activate():
        return torch.ones(2) * grid.rank_tensor(("dp", "tp"))


def test_what_an_endpoint_gives_is_computed_with_on_its_rank(scalers: Any, ranks: Tensor) -> None:
    scaled = scalers.scale.rref(ranks) + 1
    assert isinstance(scaled, Tensor)
    assert [inspect(scaled, dp=dp, tp=tp).tolist() for dp in range(2) for tp in range(2)] == [
        [r, r] for r in range(1, 5)
    ]


def test_calls_keep_their_order_whatever_waits_for_them(scalers: Any, ranks: Tensor) -> None:
    before = scalers.scale.rref(ranks)
    assert scalers.grow.rref(ranks) is None
    after = scalers.scale.rref(ranks)
    assert scalers.sum_of_own.call().get(10).values() == [2, 4, 6, 8]
    assert [inspect(x, dp=1, tp=0).tolist() for x in (before, after)] == [[2, 2], [6, 6]]


def test_the_actor_goes_on_to_write_to_what_it_gave(scalers: Any, ranks: Tensor) -> None:
    own = scalers.own.rref()
    scalers.grow.rref(ranks)
    assert inspect(own, dp=1, tp=1).tolist() == [1, 1]
    own += 5
    assert inspect(own, dp=0, tp=0).tolist() == [6, 6]
    assert inspect(scalers.own.rref(), dp=0, tp=0).tolist() == [1, 1]


def test_it_may_give_lists_and_dicts(scalers: Any, ranks: Tensor) -> None:
    given = scalers.several.rref(ranks)
    assert given["both"][1] == 3 and not given["sum"].requires_grad
    assert inspect(given, dp=0, tp=1) == {"sum": 4, "both": (pytest.approx([2, 2]), 3)}


def test_of_slices_and_async_actors(grid: ProcMesh, scalers: Any, ranks: Tensor) -> None:
    part = scalers.slice(dp=1).scale.rref(ranks.slice_mesh(dp=1))
    assert inspect(part, tp=1).tolist() == [3, 3]
    actors: Any = grid.spawn("async scalers", AsyncScaler)
    assert inspect(actors.scale.rref(actors.scale.rref(ranks)), dp=0, tp=1).tolist() == [100, 100]
    actors.stop().get(10)


def test_what_it_raises_comes_to_who_asks(scalers: Any, ranks: Tensor) -> None:
    failed, fine = scalers.fail_on_last.rref(ranks), scalers.scale.rref(ranks)
    with pytest.raises(
        RemoteException, match=r"rank 3: Actor call scalers.fail_on_last failed .*: ValueError: not today"
    ) as told:
        inspect(failed + 1)
    assert "scalers.fail_on_last.rref(ranks)" in str(told.value)  # where it was issued
    assert inspect(fine).tolist() == [0, 0]


def test_an_actor_that_ends_leaves_nobody_waiting(scalers: Any, ranks: Tensor, process_stage: Stage) -> None:
    ended = scalers.end_on_last.rref(ranks)
    with pytest.raises(RemoteException, match=r"rank 3: .*all its descendants have failed: rank 3 .*SystemExit: 2"):
        inspect(ended)
    with pytest.raises(RemoteException, match="rank 3: "):
        inspect(scalers.scale.rref(ranks))
    assert inspect(scalers.slice(dp=0).scale.rref(ranks.slice_mesh(dp=0)), tp=1).tolist() == [1, 1]
    assert "SystemExit: 2" in process_stage.faults.get(timeout=10).report()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda mesh, x: mesh.say_nothing.rref(x), "scalers.say_nothing: propagate=None does not say what it gives"),
        (lambda mesh, x: mesh.scale.rref(x, 3), r"scalers.scale\(\) too many positional arguments"),
        (
            lambda mesh, x: mesh.scale.rref(x.slice_mesh(dp=0)),
            "is on tp=2, and not on the ranks of the actors",
        ),
    ],
)
def test_mistakes_are_told_at_once(scalers: Any, ranks: Tensor, call: Callable[..., Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        call(scalers, ranks)


def test_what_it_gives_must_be_what_it_says(scalers: Any, ranks: Tensor) -> None:
    with pytest.raises(RemoteException, match="TypeError: it gives a tensor, where its propagate gives 2 tensors"):
        inspect(scalers.say_two.rref(ranks))
