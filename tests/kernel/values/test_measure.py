"""How far rows of numbers are apart."""

from __future__ import annotations

import math

import msgspec
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.values import measure as measure_module
from meshbook.kernel.values.measure import Apart, Tolerance, index_text, measure

numbers = st.sampled_from([0.0, -0.0, 1.0, 1.5, -2.0, 1e-9, 1e300, -1e300, math.inf, -math.inf, math.nan]) | st.floats()
pairs = st.lists(st.tuples(numbers, numbers), max_size=12)
tolerances = st.builds(Tolerance, st.sampled_from([0.0, 1e-6, 0.5]), st.sampled_from([0.0, 1e-8, 1.0]))


def rows(pairs: list[tuple[float, float]]) -> tuple[object, object]:
    return numpy.array([one for one, _ in pairs], dtype="f8"), numpy.array([other for _, other in pairs], dtype="f8")


def is_close(one: float, other: float, tolerance: Tolerance) -> bool:
    both_nan = math.isnan(one) and math.isnan(other)
    return both_nan or math.isclose(one, other, rel_tol=tolerance.rtol, abs_tol=tolerance.atol)


@given(pairs, tolerances)
def test_the_tolerance_is_that_of_isclose(pairs: list[tuple[float, float]], tolerance: Tolerance) -> None:
    apart = measure(*rows(pairs), tolerance)
    expected = [place for place, (one, other) in enumerate(pairs) if not is_close(one, other, tolerance)]
    assert apart.num_differing == len(expected)
    assert apart.first == (expected[0] if expected else None)


@given(pairs, tolerances)
def test_it_is_symmetric(pairs: list[tuple[float, float]], tolerance: Tolerance) -> None:
    one, other = rows(pairs)
    there, back = measure(one, other, tolerance), measure(other, one, tolerance)
    assert there == msgspec.structs.replace(back, nans=back.nans[::-1])


@given(pairs, tolerances)
def test_pieces_come_to_the_same_as_the_whole(pairs: list[tuple[float, float]], tolerance: Tolerance) -> None:
    whole = measure(*rows(pairs), tolerance)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure_module, "_BLOCK", 3)
        pieces = measure(*rows(pairs), tolerance)
    assert pieces == whole


def test_large_integers_that_are_one_as_floats_differ() -> None:
    one, other = numpy.array([2**60, 1]), numpy.array([2**60 + 1, 1])
    assert measure(one, other, Tolerance()).num_differing == 1
    assert measure(one, other, Tolerance(atol=1)).num_differing == 0


def test_kinds_of_numbers() -> None:
    assert measure(numpy.array([True, False]), numpy.array([True, True]), Tolerance()).first == 1
    assert measure(numpy.array([0], "u1"), numpy.array([255], "u1"), Tolerance()).largest == 255
    assert measure(numpy.array([3j]), numpy.array([4 + 0j]), Tolerance()).largest == 5
    assert measure(numpy.array([1], "i4"), numpy.array([1.0]), Tolerance()) == Apart(1)


def test_no_number_is_not_far_from_one() -> None:
    apart = measure(numpy.array([math.nan, 1.0, math.nan]), numpy.array([1.0, 3.0, math.nan]), Tolerance())
    assert apart == Apart(3, 2, 0, 2.0, 2 / 3, (2, 1))
    assert measure(numpy.array([math.inf]), numpy.array([1.0]), Tolerance(rtol=1, atol=9)).largest == math.inf


def test_an_index() -> None:
    assert [index_text(place, (2, 3, 4)) for place in (0, 4, 23)] == ["[0, 0, 0]", "[0, 1, 0]", "[1, 2, 3]"]
