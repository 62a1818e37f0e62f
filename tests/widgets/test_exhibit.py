from __future__ import annotations

import pytest

from meshbook.widgets.exhibit import can_hang, exhibit, side_by_side

TABLE = "<table><tr><td>1</td></tr></table>"


@pytest.mark.parametrize(
    ("mime", "metadata", "answer"),
    [
        ({"text/html": TABLE, "text/plain": "1", "text/latex": "1"}, {}, True),
        ({"text/html": TABLE}, {"text/html": {"isolated": True}}, False),
        ({"text/html": TABLE, "application/vnd.plotly.v1+json": "{}"}, {}, False),
        ({"text/html": "<table>"}, {}, False),
        ({"text/markdown": "# Title"}, {}, False),
        ({}, {}, False),
    ],
)
def test_who_may_hang_beside_others(mime: dict[str, str], metadata: dict[str, object], answer: bool) -> None:
    assert can_hang(mime, metadata) is answer


def test_a_table_has_the_width_that_it_needs_and_its_caption_is_no_button() -> None:
    html = side_by_side([exhibit("rank <0>", {"text/html": TABLE}, {}), exhibit("rank 1", {"image/png": "UE5H"}, {})])
    assert f"<figure><figcaption>rank &lt;0&gt;</figcaption>{TABLE}</figure>" in html
    assert html.count("<summary>") == 1
    assert html.count('tabindex="0"') == 1
    assert "tabindex" not in side_by_side([exhibit("rank 1", {"image/png": "UE5H"}, {})])
