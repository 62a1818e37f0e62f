"""Pictures of matrices: a PNG that others read, in the colours that were meant."""

from __future__ import annotations

from base64 import b64decode
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.outcome import Heat
from meshbook.widgets.heat import NAN_COLOUR, cividis, heat_html, png, shrunk


@st.composite
def heats(draw: st.DrawFn) -> Heat:
    rows, columns = draw(st.integers(1, 20)), draw(st.integers(1, 20))
    cells = draw(st.binary(min_size=rows * columns, max_size=rows * columns).map(lambda b: bytes(x % 65 for x in b)))
    return Heat(rows, columns, -1.0, 2.5, cells)


@pytest.mark.slow
def test_another_program_reads_the_picture_that_was_written() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.image import imread

    image = imread(BytesIO(png(Heat(2, 3, 0.0, 1.0, bytes([0, 1, 64, 64, 1, 0])))), format="png")
    colours = [tuple(round(float(channel) * 255) for channel in pixel[:3]) for line in image for pixel in line]
    assert colours == [NAN_COLOUR, cividis(0), cividis(1), cividis(1), cividis(0), NAN_COLOUR]


@pytest.mark.slow
def test_the_colours_are_those_of_cividis() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib import colormaps

    for share in (0.0, 0.1, 0.37, 0.5, 0.85, 1.0):
        theirs = [channel * 255 for channel in colormaps["cividis"](share)[:3]]
        assert cividis(share) == pytest.approx(theirs, abs=10)


@given(heats(), st.integers(1, 20))
def test_a_smaller_picture_has_its_size_and_loses_no_nan(heat: Heat, side: int) -> None:
    small = shrunk(heat, side)
    assert len(small.cells) == small.rows * small.columns and max(small.rows, small.columns) <= side
    assert (0 in small.cells) == (0 in heat.cells)


def test_it_says_in_words_what_the_colours_mean() -> None:
    html = heat_html(Heat(4, 4, -1.0, 2.5, bytes(range(16))), 7, 64)
    assert 'alt="heat map: -1 is dark, 2.5 is bright, 7 nan in orange"' in html
    assert b64decode(html.partition("base64,")[2].partition('"')[0]).startswith(b"\x89PNG")
