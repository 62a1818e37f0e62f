from __future__ import annotations

import base64
import re
from typing import Any

import pytest

from meshbook.kernel.outcome import Display
from meshbook.widgets.wall import Wall


def figure(data: str, form: str = "image/png", **fields: Any) -> Display:
    return Display(1, 1, {form: data, "text/plain": "<Figure>"}, **fields)


def html(wall: Wall) -> str:
    return str(wall.drawn(0.0)[0]["text/html"])


def names(wall: Wall) -> list[str]:
    return re.findall(r"<summary>(ranks? [^<]*)<br>", html(wall))


def test_one_picture_is_shown_as_its_rank_has_shown_it() -> None:
    wall = Wall("here")
    wall.put([3], figure("UE5H", metadata={"image/png": {"width": 320}}))
    assert wall.drawn(0.0) == ({"image/png": "UE5H", "text/plain": "<Figure>"}, {"image/png": {"width": 320}})


def test_pictures_stand_in_the_order_of_ranks_equal_ones_once() -> None:
    wall = Wall("here")
    for rank, data in ((5, "UE5H"), (1, "R0lG"), (2, "UE5H"), (0, "R0lG"), (6, "UE5H")):
        wall.put([rank], figure(data))
    assert names(wall) == ["ranks 0-1", "ranks 2,5-6"]


def test_the_picture_with_the_width_that_was_asked_for_and_its_text_for_who_does_not_see_it() -> None:
    wall = Wall("here")
    wall.put([0], Display(1, 1, {"image/png": "UE5H", "text/plain": '<a "b">'}, metadata={"image/png": {"width": 320}}))
    wall.put([1], figure("R0lG", "image/gif"))
    assert '<img alt="&lt;a &quot;b&quot;&gt;" width="320" src="data:image/png;base64,UE5H">' in html(wall)
    assert '<img alt="&lt;Figure&gt;" src="data:image/gif;base64,R0lG">' in html(wall)


def test_a_transparent_figure_has_the_ground_that_it_needs() -> None:
    wall = Wall("here")
    wall.put([0], figure("UE5H", metadata={"needs_background": "light"}))
    wall.put([1], figure("R0lG"))
    assert '<img alt="&lt;Figure&gt;" style="background:#fff" src="data:image/png;base64,UE5H">' in html(wall)
    assert '<img alt="&lt;Figure&gt;" src="data:image/png;base64,R0lG">' in html(wall)


def test_svg_is_an_image_whose_scripts_stay_dead() -> None:
    wall = Wall("here")
    source = "<svg><script>alert(1)</script></svg>"
    wall.put([0], figure(source, "image/svg+xml"))
    wall.put([1], figure("UE5H"))
    assert "<svg" not in html(wall)
    assert f"data:image/svg+xml;base64,{base64.b64encode(source.encode()).decode()}" in html(wall)


@pytest.mark.parametrize(("count", "columns"), [(2, 2), (4, 4), (8, 4), (17, 5), (64, 8)])
def test_many_pictures_have_rows_as_long_as_columns(count: int, columns: int) -> None:
    wall = Wall("here")
    for rank in range(count):
        wall.put([rank], figure(f"{rank:04}"))
    assert f"--mb-columns:{columns}" in html(wall)


def test_a_rank_that_has_said_something_since_or_has_its_picture_there_is_not_taken() -> None:
    wall = Wall("here")
    wall.put([0], figure("UE5H"))
    wall.pass_by([1])
    assert [wall.takes([rank]) for rank in range(3)] == [False, False, True]
    assert not wall.takes([1, 2])


def test_a_picture_that_was_cleared_makes_room_for_the_next() -> None:
    wall = Wall("here")
    wall.put([0, 1], figure("UE5H"))
    wall.pass_by([0])
    wall.clear(0)
    assert wall.takes([0]) and not wall.takes([1])
    wall.put([0], figure("R0lG"))
    assert names(wall) == ["rank 0", "rank 1"]
    assert not wall.takes([0])


def test_who_has_nothing_there_clears_nothing() -> None:
    wall = Wall("here")
    wall.put([0], figure("UE5H"))
    wall.pass_by([1])
    wall.clear(1)
    assert not wall.takes([1])


def test_it_is_drawn_anew_when_it_has_changed_and_not_too_often() -> None:
    wall = Wall("here")
    wall.put([0], figure("UE5H"))
    assert wall.is_due(0.0)
    wall.drawn(0.0)
    assert not wall.is_due(9.0)
    wall.put([1], figure("R0lG"))
    assert not wall.is_due(0.1) and wall.is_due(0.3)


def test_a_large_one_is_drawn_less_often_and_at_last_takes_no_more() -> None:
    wall = Wall("here")
    for rank in range(2):
        wall.put([rank], figure(f"{rank}" + "A" * 3_000_000))
        wall.drawn(0.0)
    assert wall.takes([2])
    wall.put([2], figure("2" + "A" * 3_000_000))
    assert not wall.is_due(2.0) and wall.is_due(2.5)
    assert not wall.takes([3])
    wall.clear(0)
    assert wall.takes([0])
