"""The plan of a resize: who stays, who comes, who goes, and under which number."""

from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.runtime.controller.reshape import Reshape, number
from meshbook.runtime.ranks.place import coordinates

SIZES = st.integers(1, 4)
GRIDS = st.lists(st.tuples(SIZES, SIZES), min_size=1, max_size=4).map(
    lambda pairs: (
        {f"a{i}": old for i, (old, _) in enumerate(pairs)},
        {f"a{i}": new for i, (_, new) in enumerate(pairs)},
    )
)


def points(axes: dict[str, int]) -> list[dict[str, int]]:
    """All coordinates in row-major order, the plain way."""
    return [dict(zip(axes, point, strict=True)) for point in product(*map(range, axes.values()))]


@given(GRIDS)
def test_who_stays_keeps_its_coordinates_and_the_numbers_are_row_major(grids: tuple[dict[str, int], dict[str, int]]):
    old, new = grids
    plan = Reshape.of(old, new)
    before, after = points(old), points(new)
    assert {(before[a]["a0"], b) for a, b in plan.kept.items()} == {(after[b]["a0"], b) for b in plan.kept.values()}
    assert all(before[a] == after[b] for a, b in plan.kept.items())
    assert [before[rank] for rank in plan.kept] == [point for point in before if point in after]


@given(GRIDS)
def test_every_rank_of_either_grid_is_accounted_for_once(grids: tuple[dict[str, int], dict[str, int]]):
    old, new = grids
    plan = Reshape.of(old, new)
    assert plan.num_ranks == math.prod(new.values())
    assert sorted([*plan.kept, *plan.dropped]) == list(range(math.prod(old.values())))
    assert sorted([*plan.kept.values(), *plan.added]) == list(range(plan.num_ranks))


@given(GRIDS)
def test_numbers_are_kept_exactly_where_none_changes_its_meaning(grids: tuple[dict[str, int], dict[str, int]]):
    old, new = grids
    shared = list(zip(points(old), points(new), strict=False))
    assert Reshape.of(old, new).keeps_numbers == all(a == b for a, b in shared)


@given(GRIDS)
def test_there_and_back_is_no_change_for_those_that_stay(grids: tuple[dict[str, int], dict[str, int]]):
    there, back = Reshape.of(*grids), Reshape.of(*reversed(grids))
    assert {b: a for a, b in there.kept.items()} == back.kept


@given(GRIDS, st.data())
def test_a_set_of_ranks_is_extended_as_a_slice_would_be(
    grids: tuple[dict[str, int], dict[str, int]], data: st.DataObject
):
    old, new = grids
    plan = Reshape.of(old, new)
    chosen = data.draw(st.sets(st.sampled_from(sorted(old))))
    # A slice of an axis with one rank is all of it.
    fixed = {axis: data.draw(st.integers(0, old[axis] - 1)) for axis in sorted(chosen) if old[axis] > 1}

    def slice_of(axes: dict[str, int]) -> tuple[int, ...]:
        return tuple(r for r, point in enumerate(points(axes)) if all(point[a] == i for a, i in fixed.items()))

    assert plan.extended(slice_of(old)) == slice_of(new)
    assert plan.renumbered(slice_of(old)) == tuple(r for r in slice_of(new) if r not in plan.added)


@given(GRIDS)
def test_number_is_the_inverse_of_coordinates(grids: tuple[dict[str, int], dict[str, int]]):
    axes, _ = grids
    assert [number(coordinates(rank, axes), axes) for rank in range(math.prod(axes.values()))] == list(
        range(math.prod(axes.values()))
    )


def test_the_outermost_axis_alone_keeps_numbers():
    axes = {"dp": 2, "tp": 2}
    assert Reshape.of(axes, {"dp": 5}).keeps_numbers
    assert Reshape.of(axes, {"dp": 1}).keeps_numbers
    assert not Reshape.of(axes, {"tp": 3}).keeps_numbers
    assert not Reshape.of(axes, {"tp": 1}).keeps_numbers
    assert not Reshape.of({"dp": 2, "tp": 1}, {"dp": 1, "tp": 2}).keeps_numbers


def test_what_cannot_be_resized():
    with pytest.raises(ValueError, match=r"no axis 'pp' to resize: it has dp, tp"):
        Reshape.of({"dp": 2, "tp": 2}, {"pp": 2})
    with pytest.raises(ValueError, match="size 0; an axis has at least 1 rank"):
        Reshape.of({"dp": 2}, {"dp": 0})
