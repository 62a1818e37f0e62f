"""Many ranks' metrics as one line with a band."""

from __future__ import annotations

import math
import statistics
import struct
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.dashboard.curves import MOST_VALUES, Band, pack_line, pack_rows


@given(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=5, max_size=5), min_size=1, max_size=9))
def test_each_step_has_the_median_and_the_range_of_its_ranks(ranks: list[list[float]]) -> None:
    band = Band()
    for values in ranks:
        band.extend((float(step), value, 0.0) for step, value in enumerate(values))
    for step, low, middle, high in band.rows():
        here = [values[int(step)] for values in ranks]
        assert (low, middle, high) == (min(here), statistics.median(here), max(here))


def test_a_long_run_stays_a_short_curve_and_loses_no_value() -> None:
    band = Band(most=16)
    band.extend((float(step), float(step), 0.0) for step in range(1000))
    rows = band.rows()
    assert len(rows) <= 16
    assert rows[0][1] == 0.0 and rows[-1][3] == 999.0


def test_a_run_of_days_keeps_no_more_than_a_short_one_and_still_has_its_median() -> None:
    band = Band(most=4)
    tracemalloc.start()
    try:
        band.extend((float(step), float(step % 1000), 0.0) for step in range(8_000))
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 4 * MOST_VALUES * 8 * 2  # all of the values were 64 KB
    for _, low, middle, high in band.rows():
        assert (low, high) == (0.0, 999.0) and 400 < middle < 600


def test_of_two_bins_each_has_its_share_in_the_median() -> None:
    band = Band(most=1)
    band.extend((0.0, 1.0, 0.0) for _ in range(8 * MOST_VALUES))
    band.extend((1.0, 2.0, 0.0) for _ in range(3 * MOST_VALUES))
    assert band.rows() == [(0.0, 1.0, 1.0, 2.0)]


def test_later_points_change_only_their_place() -> None:
    band = Band()
    band.extend([(0.0, 1.0, 0.0), (1.0, 2.0, 0.0)])
    assert band.rows()[1] == (1.0, 2.0, 2.0, 2.0)
    band.extend([(1.0, 4.0, 0.0)])
    assert band.rows() == [(0.0, 1.0, 1.0, 1.0), (1.0, 2.0, 3.0, 4.0)]


def test_steps_that_most_ranks_have_not_come_to_wait() -> None:
    band = Band()
    for rank in range(5):
        band.extend(((float(step), float(rank), 0.0) for step in range(10 if rank else 14)), rank)
    assert band.rows()[-1] == (9.0, 0.0, 2.0, 4.0)
    band.extend(((float(step), 1.0, 0.0) for step in range(10, 30)), 0)  # the others have died: it goes on
    assert len(band.rows()) > 20


def test_a_nan_counts_for_nothing_where_others_have_a_number() -> None:
    band = Band()
    band.extend([(0.0, math.nan, 0.0), (0.0, 2.0, 0.0), (1.0, math.nan, 0.0), (math.inf, 1.0, 0.0)])
    first, second = band.rows()
    assert first == (0.0, 2.0, 2.0, 2.0)
    assert all(map(math.isnan, second[1:]))


def test_numbers_too_large_for_the_wire_are_clipped() -> None:
    packed = struct.unpack("<4f", pack_rows([(1.0, -1e300, math.nan, math.inf)]))
    assert packed[0] == 1.0 and packed[1] < -1e38 and math.isnan(packed[2]) and packed[3] == math.inf


def test_the_line_of_one_rank_ends_at_its_last_point() -> None:
    line = pack_line([(float(step), 0.5, 0.0) for step in range(5000)], most=100)
    assert len(line) <= 100 * 8
    assert struct.unpack("<ff", line[-8:]) == (4999.0, 0.5)
    assert pack_line([]) == b""
