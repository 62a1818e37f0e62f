"""What `%mesh watch` draws."""

from __future__ import annotations

import math
from xml.etree import ElementTree

from meshbook.kernel.dashboard.series import Series
from meshbook.widgets.watch import MOST_ROWS, WatchView


def series_of(*values: float) -> Series:
    series = Series()
    for value in values:
        series.add(value)
    return series


def test_equal_ranks_are_one_row_in_one_scale() -> None:
    view = WatchView("loss", {0: series_of(0, 4), 1: series_of(0, 4), 2: series_of(2)}, {}, is_over=False)
    assert repr(view).splitlines() == ["watch loss   0 to 4", "0-1 │ ▁█  4", "  2 │ ▅  2"]


def test_why_a_rank_has_none_is_said() -> None:
    view = WatchView("loss", {0: series_of(1), 1: Series(), 2: Series()}, {1: "not defined"}, is_over=True)
    assert repr(view).splitlines() == [
        "watch loss   1 to 1   ended",
        "  0 │ ▅  1",
        "  1 │ (not defined)",
        "  2 │ (nothing yet)",
    ]


def test_the_drawing_is_sound_and_says_what_it_shows() -> None:
    view = WatchView("d['<a>']", {0: series_of(1, math.nan, 3), 1: series_of(math.nan)}, {}, is_over=False)
    html = view.bundle()["text/html"]
    page = ElementTree.fromstring(f"<p>{html.replace('colspan=2', '')}</p>")
    [svg] = page.iter("svg")
    assert svg.get("aria-label") == "d['<a>'] on 0: 1 first, 3 last"
    assert [path.get("d") for path in page.iter("path")] == ["M2.0 21.0h0.1M238.0 3.0h0.1"], "a number alone is a dot"


def test_numbers_without_a_gap_are_one_line_and_the_others_say_why() -> None:
    html = WatchView("x", {0: series_of(1, 2, 3), 1: Series(), 2: Series()}, {1: "<gone>"}, is_over=False).bundle()
    assert "d='M2.0 21.0h0.1L120.0 12.0L238.0 3.0'" in html["text/html"]
    assert "&lt;gone&gt;" in html["text/html"] and html["text/html"].count("nothing yet") == 1


def test_of_very_many_ranks_the_first_are_drawn() -> None:
    view = WatchView("x", {rank: series_of(rank) for rank in range(100)}, {}, is_over=False)
    assert repr(view).splitlines()[-1] == "  … ┆ 60 more"
    html = view.bundle()["text/html"]
    assert html.count("<svg") == MOST_ROWS and ">60 more<" in html
