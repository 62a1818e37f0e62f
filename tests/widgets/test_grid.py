from __future__ import annotations

from meshbook.widgets.grid import grid_html


def test_the_grid_follows_the_last_axis_and_stays_small() -> None:
    shown = grid_html([*["idle"] * 4, "dead", "stuck"], {"dp": 2, "tp": 3})
    assert "repeat(3,11px)" in shown and shown.count("title=") == 6 and shown.count("outline:") == 2
    assert "rank 4: dp=1, tp=1, dead" in shown and 'aria-label="6 ranks: 4 idle, 1 dead, 1 stuck"' in shown
    row = grid_html(["idle"] * 64, {"rank": 64})
    assert "repeat(auto-fill,11px)" in row and "width:414px;max-width:100%" in row, "in a narrow page it has more rows"
    assert "repeat(auto-fill,6px)" in grid_html(["busy"] * 512, {"dp": 256, "tp": 2}), "a tower is laid down"
    assert grid_html(["idle"] * 2000, {"rank": 2000}) == ""
