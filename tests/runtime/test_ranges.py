"""Groups of ranks in few characters, which name exactly these ranks."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshbook.runtime.ranges import coords_text, named, ranks_text


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], ""),
        ([3], "3"),
        ([1, 0], "0-1"),
        ([7, 0, 1, 3, 2], "0-3,7"),
        ([0, 1, 2, 5, 7, 8, 9], "0-2,5,7-9"),
        ([1, 3, 5, 7], "1,3,5,7"),
        (range(1, 64, 2), "1-63:2"),
    ],
)
def test_ranks_are_ranges(ranks: Iterable[int], text: str) -> None:
    assert ranks_text(ranks) == text


@given(st.sets(st.integers(0, 40)))
def test_ranges_name_exactly_the_ranks(ranks: set[int]) -> None:
    found = list[int]()
    for part in filter(None, ranks_text(ranks).split(",")):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        found += range(int(first), int(last or first) + 1, int(step or 1))
    assert found == sorted(ranks)


def test_the_word_in_front() -> None:
    assert [named([3]), named((0, 1)), named([])] == ["rank 3", "ranks 0-1", "ranks "]


@given(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), min_size=1))
@settings(max_examples=50)
def test_coordinates_name_exactly_the_points(points: set[tuple[int, int, int]]) -> None:
    axes = ["pp", "dp", "tp"]
    text = coords_text([dict(zip(axes, point, strict=True)) for point in points], axes, limit=10**6)
    named: list[tuple[int, ...]] = []
    for block in text.split(" · "):
        sizes = [_numbers(part.split("=")[1]) for part in _split_axes(block)]
        named += [(a, b, c) for a in sizes[0] for b in sizes[1] for c in sizes[2]]
    assert sorted(named) == sorted(points)


def _split_axes(block: str) -> list[str]:
    return block.replace(",dp=", ";dp=").replace(",tp=", ";tp=").split(";")


def _numbers(text: str) -> list[int]:
    pairs = [part.split("-") for part in text.strip("()").split(",")]
    return [number for pair in pairs for number in range(int(pair[0]), int(pair[-1]) + 1)]


def test_coordinates_of_many_scattered_points_are_cut_and_counted() -> None:
    points = [{"dp": i, "tp": i} for i in range(100)]
    text = coords_text(points, ["dp", "tp"])
    assert text.startswith("dp=0,tp=0 · dp=1,tp=1") and text.endswith("… (100 points)") and len(text) <= 60


def test_coordinates_of_one_block_are_one_text() -> None:
    points = [{"dp": d, "tp": t} for d in range(2) for t in (0, 2)]
    assert coords_text(points, ["dp", "tp"]) == "dp=0-1,tp=(0,2)"
