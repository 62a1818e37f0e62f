"""Ctrl-C anywhere in what is done with distributed tensors: torch works here afterwards, and ranks are in step."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

from meshbook.runtime import Actor, ProcMesh, endpoint
from meshbook.runtime.tensors import activation, get_active_mesh, inspect, remote
from tests.runtime.conftest import Stage
from tests.strikes import Place, strike_everywhere

pytestmark = [pytest.mark.slow, pytest.mark.real]


class Giver(Actor):
    @endpoint(propagate=lambda x: x * 2)
    def twice(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def plus_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


described = remote(plus_one, propagate=lambda x: (x + 1).cos().clone())
learnt = remote(plus_one, propagate="cached")


class Program:
    """What can be done, and what must hold whenever that was interrupted."""

    def __init__(self, grid: ProcMesh) -> None:
        self.grid = grid
        self.givers = grid.spawn("givers", Giver)
        self.new, self.checks = itertools.count(1), itertools.count()
        with grid.activate():
            self.x: Any = torch.ones(3) * grid.rank_tensor("dp")
            self.count: Any = torch.zeros(1)

    def activate(self) -> object:
        with self.grid.activate():
            return torch.zeros(3)

    def compute(self) -> object:
        return self.x + 1

    def compute_something_new(self) -> object:
        """Whose form is not known yet."""
        return self.x.expand(next(self.new), 3).sum()

    def write(self) -> object:
        return self.count.add_(1)

    def reduce(self) -> object:
        return self.x.reduce("dp")

    def reduce_(self) -> object:
        return self.count.reduce_("tp", "max")

    def move(self) -> object:
        return self.x.slice_mesh(dp=0).to_mesh(self.grid.slice(dp=1))

    def rank(self) -> object:
        return self.grid.rank_tensor("tp")

    def call_with_described_form(self) -> object:
        return described(self.x)

    def call_to_learn_form(self) -> object:
        return learnt(self.x.expand(next(self.new), 3))

    def call_actors(self) -> object:
        return self.givers.twice.rref(self.x)

    def fetch(self) -> object:
        return inspect(self.x, dp=1, tp=0)

    def drop(self) -> object:
        return (self.x + 1).drop()

    def check(self) -> None:
        """Here each time; on the ranks now and then, as what is wrong there stays so."""
        here = torch.zeros(2) + 1
        assert type(here) is torch.Tensor and here.sum().item() == 2 and torch.is_grad_enabled()
        with pytest.raises(ValueError, match="no device mesh is active"):
            get_active_mesh()
        if next(self.checks) % 8 == 0:
            self.check_ranks()

    def check_ranks(self) -> None:
        assert inspect(described(self.x).reduce("dp"), dp=0, tp=1).tolist() == [3, 3, 3]
        assert len({inspect(self.count, dp=dp, tp=tp).item() for dp in (0, 1) for tp in (0, 1)}) == 1


def is_in_with(frame: FrameType | None) -> bool:
    """Whether a `with` statement begins or ends to activate a mesh: what hits just there comes too late or too early.

    It is so with all that has no `__enter__` in C.
    """
    if frame is not None and frame.f_code is ProcMesh.activate.__code__:
        return True
    ends = {activation.Activation.__enter__.__code__, activation.Activation.__exit__.__code__}
    while frame is not None and frame.f_code not in ends:
        frame = frame.f_back
    return frame is not None


@pytest.fixture(scope="module")
def within_torch() -> set[Place]:
    """Where torch was struck at in tests before: most operations come there, and a third of all places is there."""
    return set()


def _is_within_torch(place: Place) -> bool:
    return Path(torch.__file__).parent in Path(place[1].co_filename).parents


@pytest.fixture
def program(process_stage: Stage) -> Program:
    return Program(process_stage.shared(dp=2, tp=2))


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "what",
    [
        Program.activate,
        Program.compute,
        Program.compute_something_new,
        Program.write,
        Program.reduce,
        Program.reduce_,
        Program.move,
        Program.rank,
        Program.call_with_described_form,
        Program.call_to_learn_form,
        Program.call_actors,
        Program.fetch,
        Program.drop,
    ],
)
def test_wherever_it_hits(program: Program, what: Callable[[Program], object], within_torch: set[Place]) -> None:
    what(program)
    struck = strike_everywhere(lambda: what(program), program.check, is_in_with, within_torch)
    assert len(struck) > 20
    within_torch.update(place for place in struck if _is_within_torch(place))
    program.check_ranks()
