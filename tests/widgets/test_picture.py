from __future__ import annotations

import pytest

from meshbook.widgets.picture import is_picture


@pytest.mark.parametrize(
    ("forms", "answer"),
    [
        (["image/png"], True),
        (["image/png", "image/jpeg", "text/plain"], True),
        (["image/svg+xml"], True),
        (["text/plain"], False),
        ([], False),
        (["image/png", "application/vnd.plotly.v1+json"], False),
        (["application/pdf"], False),
    ],
)
def test_a_picture_is_nothing_else(forms: list[str], answer: bool) -> None:
    assert is_picture(dict.fromkeys(forms, "")) is answer
