"""Values over time in bounded memory."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.dashboard.series import BARS, MOST, Series, bounds, sparkline


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=3 * MOST))
def test_the_first_and_the_last_stay_and_the_rest_is_in_order(values: list[float]) -> None:
    series = Series()
    for value in values:
        series.add(value)
    kept = series.points()
    assert (kept[0], kept[-1]) == (values[0], values[-1])
    assert len(kept) <= MOST + 1
    places = iter(values)
    assert all(value in places for value in kept)
    low, high = bounds([series])
    line = sparkline(kept, low, high)
    assert len(line) == min(len(kept), 40)
    assert set(line) <= set(BARS)


def test_old_values_get_coarser() -> None:
    series = Series()
    for step in range(4 * MOST + 5):
        series.add(step)
    assert series.points() == [*range(0, 4 * MOST + 1, 8), 4 * MOST + 4]


def test_what_is_no_number_is_a_gap_and_infinity_an_end() -> None:
    assert sparkline([math.nan, math.inf, -math.inf, 1.0, 1.0], 1.0, 1.0) == " █▁▅▅"
    assert bounds([]) == (0.0, 0.0)
