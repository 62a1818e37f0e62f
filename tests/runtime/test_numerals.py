from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.runtime.numerals import condensed, odd_ones, read, spread


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", ()),
        ("step 3: loss -0.5", ("3", "-0.5")),
        ("1e-3 +2.5E+10 .5 7.", ("1e-3", "+2.5E+10", ".5", "7.")),
        ("1-2 a-3 (4)-5 [6]-7", ("1", "2", "3", "4", "5", "6", "7")),
        ("1,234,567.5 12,34", ("1,234,567.5", "12", "34")),
        ("rank12.pt v1.2.3", ("12", "1.2", "3")),
        ("\x1b[31m5\x1b[0m", ("5",)),
        ("nan inf", ()),
    ],
)
def test_what_a_number_is(text: str, numbers: tuple[str, ...]) -> None:
    assert read(text).numbers == numbers


def test_whole_numbers_that_are_longer_than_floats_are_told_apart() -> None:
    assert spread([read(f"id {(1 << 62) + step}") for step in (3, 1, 2)]) == f"id {(1 << 62) + 1}…{(1 << 62) + 3}"
    assert spread([read("1.0"), read("1.00")]) == "1.0…1.00"


@given(st.lists(st.text("a1.-+,e \x1b[m", max_size=20), min_size=1, max_size=3))
def test_a_text_alone_is_told_as_it_is(texts: list[str]) -> None:
    for text in texts:
        assert spread([read(text)]) == text
        assert len(read(text).values) == len(read(text).numbers)


@pytest.mark.parametrize(
    ("numbers", "odd"),
    [
        ([1.0, 1.1, 0.9, 1.05, 0.95, 50.0], {5}),
        (range(64), set()),
        ([3, 3, 3, 3, 3, 2], set()),
        ([9, 9, 9, 9, 9, 2], {5}),
        ([512, 512, 512, 512, 512, 509], set()),
        ([2.0000001, 2.0000002, 2.0000003, 2.0000002, 2.0000001, 2.00009], set()),
        ([1.7e9, 1.7e9 + 0.1, 1.7e9 + 0.2, 1.7e9 + 0.1, 1.7e9, 1.7e9 + 60], set()),
        ([0] * 20 + [1] * 19, set()),
        ([1.0, float("inf"), 1.2, 0.9, 1.1, 1.05], {1}),
    ],
)
def test_which_is_far_from_the_others(numbers: Sequence[float], odd: set[int]) -> None:
    assert odd_ones({index: [number] for index, number in enumerate(numbers)}) == odd


def test_a_column_in_which_many_are_far_says_nothing_of_the_others() -> None:
    values = {index: [index // 11, 9.0 if index == 2 else 1 + index / 100] for index in range(20)}
    assert odd_ones(values) == {2}


def test_rows_are_told_in_the_order_of_their_first() -> None:
    rows = [["idle", "3 s"], ["busy", ""], ["idle", "5 s"], ["busy", ""], ["idle", "x"]]
    assert condensed(rows) == [([0, 2], ["idle", "3…5 s"]), ([1, 3], ["busy", ""]), ([4], ["idle", "x"])]


def test_the_odd_row_is_kept_where_that_is_wanted() -> None:
    rows = [[f"{99 if index == 4 else index} s"] for index in range(8)]
    assert condensed(rows) == [([0, 1, 2, 3, 5, 6, 7], ["0…7 s"]), ([4], ["99 s"])]
    assert condensed(rows, keeps_odd=False) == [([*range(8)], ["0…99 s"])]


@given(st.lists(st.lists(st.sampled_from(["1", "7.5", "a 2", ""]), min_size=2, max_size=2), max_size=20))
def test_no_row_is_lost(rows: list[list[str]]) -> None:
    assert sorted(index for group, _ in condensed(rows) for index in group) == list(range(len(rows)))
