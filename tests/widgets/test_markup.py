from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from meshbook.widgets.markup import is_still


@pytest.mark.parametrize(
    "source",
    [
        "text",
        "<table><tr><td>1<br>2</td></tr></table>",
        "<style>td > b { color: red }</style><table id='T_1'></table>",
        "<div>&lt;script&gt; <!-- <script> --></div>",
        '<progress value="3"></progress> 3 of 7<hr/>',
        "<svg><g><circle r='2'/></g></svg>",
        "<DIV><Img src='data:'></div>",
    ],
)
def test_what_can_stand_beside_others(source: str) -> None:
    assert is_still(source)


@pytest.mark.parametrize(
    "source",
    [
        "<div>",
        "</div>",
        "<b><i></b></i>",
        "<div/>",
        "<table><tr><td>1</table>",
        "<script>draw()</script>",
        "<iframe src='/'></iframe>",
        "<input type=checkbox>",
        "<b onmouseover='f()'>1</b>",
        "<!-- no end <b>",
        "<div class='no end",
        "<style>no end",
        "<![x[",
        "<![",
        "x" * 200_000,
    ],
)
def test_what_moves_or_swallows_what_follows(source: str) -> None:
    assert not is_still(source)


@given(st.text("<>/!-&;b='i \n[]?#x"))
@example("<![b")
def test_any_text_is_judged(source: str) -> None:
    assert is_still(source) in (True, False)
