"""Short runs of random programs on distributed tensors; `make chaos` is the long one. And of their model alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.chaos.tensors.shards import PLACES, Memory, Place, Value

ROOT = Path(__file__).parents[3]
GRID, ROW = Place("grid"), Place("grid", (("dp", 1),))


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.timeout(240)
@pytest.mark.parametrize("args", [["--steps", "80"], ["--steps", "15", "--presses"]], ids=["against torch", "presses"])
def test_random_programs(args: list[str]) -> None:
    """In a process of its own, which nothing is to outlive."""
    command = [sys.executable, "-m", "tests.chaos.tensors", "--seeds", "1", *args]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("seed 0: well")


def of_ranks(place: Place = GRID) -> Value:
    """Of each rank, its place in row-major order, twice."""
    return Value(place, {coords: torch.full((2,), float(rank)) for rank, coords in enumerate(place.coords)})


def test_there_are_places_of_all_slices() -> None:
    assert [str(place) for place in PLACES if place.root == "pair"] == ["pair[]", "pair[tp=0]", "pair[tp=1]"]
    assert sum(place.root == "grid" for place in PLACES) == 9
    assert [str(place) for place in PLACES if place.is_in(ROW)] == ["grid[dp=1, tp=0]", "grid[dp=1, tp=1]"]


def test_a_slice_shares_memory_with_what_it_is_of() -> None:
    memory, value = Memory(), of_ranks()
    row = memory.sliced(value, ROW)
    memory.write(lambda shard: shard.add_(10), row)
    assert {coords: value.shards[coords].tolist() for coords in GRID.coords} == {  # type: ignore[union-attr]
        (0, 0): [0, 0],
        (0, 1): [1, 1],
        (1, 0): [12, 12],
        (1, 1): [13, 13],
    }


def test_what_is_moved_is_a_copy_on_all_along_new_axes() -> None:
    memory, row = Memory(), of_ranks(ROW)
    moved = memory.moved(row, GRID)
    memory.write(lambda shard: shard.zero_(), row)
    assert [memory.shard(moved, coords).tolist() for coords in GRID.coords] == [  # type: ignore[union-attr]
        [0, 0],
        [1, 1],
        [0, 0],
        [1, 1],
    ]


def test_a_reduction_is_lost_where_a_rank_of_its_group_has_lost_its_shard() -> None:
    memory, value = Memory(), of_ranks()
    holed = Value(GRID, {**value.shards, (1, 0): None})
    reduced = memory.reduced(holed, ["tp"], "sum", scatter=False)
    assert memory.lost(reduced) == [(1, 0), (1, 1)]
    assert memory.shard(reduced, (0, 1)).tolist() == [1, 1]  # type: ignore[union-attr]


def test_what_could_not_be_written_is_lost_with_its_views() -> None:
    memory, value = Memory(), of_ranks()
    view = memory.of_each(lambda shard: shard[:1], value)
    copy = memory.of_each(lambda shard: shard + 0, value)
    holed = Value(GRID, {**value.shards, (0, 1): None})
    memory.write(lambda shard, other: shard.add_(other), value, holed)
    assert memory.lost(value) == memory.lost(view) == [(0, 1)]
    assert memory.lost(copy) == []
