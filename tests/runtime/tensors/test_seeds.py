"""Random numbers of meshes: those that would be drawn here, and the same on all ranks."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
import torch

from meshbook.runtime import ProcMesh, heal
from meshbook.runtime.tensors import inspect

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def _numbers_of_others() -> Generator[None]:
    before = torch.get_rng_state()
    yield
    torch.set_rng_state(before)


def test_a_seed_of_before_the_mesh_was_used(process_stage: Any) -> None:
    torch.manual_seed(42)
    expected = torch.rand(2)
    torch.manual_seed(42)
    with process_stage.procs({"r": 1}).activate():
        found = torch.rand(2)
    assert inspect(found).equal(expected)


def test_the_same_seed_again(grid: ProcMesh) -> None:
    """As of a cell that is run twice; also where numbers were drawn here meanwhile."""
    found: list[Any] = []
    for _ in range(2):
        torch.manual_seed(7)
        torch.rand(3)
        with grid.activate():
            found.append(torch.rand(2))
    assert inspect(found[0]).equal(inspect(found[1]))


def test_ranks_that_came_back_draw_what_the_others_draw(process_stage: Any) -> None:
    procs = process_stage.procs({"r": 2})
    with procs.activate():
        inspect(torch.rand(2))
        procs.roster.kill([1])
        assert "killed by SIGKILL" in process_stage.faults.get(timeout=10).report()
        heal(procs)
        found: Any = torch.rand(2)
    assert inspect(found, r=0).equal(inspect(found, r=1))


def test_all_ranks_draw_the_same_numbers_as_they_would_be_drawn_here(grid: ProcMesh) -> None:
    torch.manual_seed(5)
    expected = [torch.rand(2), torch.randn(3), torch.randperm(4)]
    torch.manual_seed(5)
    with grid.activate():
        found = [torch.rand(2), torch.randn(3), torch.randperm(4)]
    for dp in (0, 1):
        assert all(torch.equal(*pair) for pair in zip(inspect(found, dp=dp, tp=0), expected, strict=True))
