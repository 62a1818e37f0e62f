"""What ranks show, side by side: pictures, and pieces of HTML such as tables.

Small multiples, as Edward Tufte has named them: each small, all in one glance, any picture large when clicked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, sqrt
from typing import Final, cast

from .markup import is_still
from .picture import form_of, is_picture, picture_html

_ROW: Final = 4
"""Pictures in a row, at least, where there are as many."""


@dataclass(frozen=True, slots=True)
class Exhibit:
    """One of what stands side by side."""

    caption: str
    html: str
    is_picture: bool = True
    """May it be as small as it has to be, and large when it is clicked? Anything else has the width that it needs."""


def can_hang(mime: Mapping[str, str], metadata: Mapping[str, object]) -> bool:
    """May this stand beside what other ranks show?

    Example:
        >>> can_hang({"image/png": "UE5H", "text/plain": "<Figure>"}, {})
        True
        >>> can_hang({"text/html": "<table></table>", "text/plain": "a table"}, {})
        True
        >>> can_hang({"text/plain": "1"}, {}), can_hang({"text/html": "<script>draw()</script>"}, {})
        (False, False)
    """
    return is_picture(mime) or (is_markup(mime) and not metadata and is_still(mime["text/html"]))


def is_markup(mime: Mapping[str, str]) -> bool:
    """Is there HTML, and else only text for who cannot show it?"""
    return "text/html" in mime and all(form.startswith("text/") for form in mime)


def exhibit(caption: str, mime: Mapping[str, str], metadata: Mapping[str, object], alt: str | None = None) -> Exhibit:
    """What a rank shows, with its caption; `alt` is read to who does not see a picture, else its text is."""
    text = mime.get("text/plain", "")
    if not is_picture(mime):
        return Exhibit(caption, mime.get("text/html") or f"<pre>{escape(text)}</pre>", is_picture=False)
    form = form_of(mime)
    width = cast("Mapping[str, object]", metadata.get(form) or {}).get("width")
    known_width = width if isinstance(width, int) else None
    alt = text if alt is None else alt
    return Exhibit(caption, picture_html(form, mime[form], alt, known_width, metadata.get("needs_background")))


def side_by_side(exhibits: Sequence[Exhibit]) -> str:
    """All of them as HTML: pictures in rows that are about as many as each has."""
    num_columns = min(len(exhibits), max(_ROW, ceil(sqrt(len(exhibits)))))
    is_wide = not all(each.is_picture for each in exhibits)  # perhaps: who has no mouse can scroll then, too
    focus = ' tabindex="0"' if is_wide else ""
    return f'<div class="mb-wall" style="--mb-columns:{num_columns}"{focus}>{"".join(_framed(exhibits))}</div>'


def _framed(exhibits: Iterable[Exhibit]) -> Iterable[str]:
    # A click on its summary opens a `details`, in which there is nothing: the rules make it as wide as the page then.
    for each in exhibits:
        caption = escape(each.caption)
        if each.is_picture:
            yield f"<details><summary>{caption}<br>{each.html}</summary></details>"
        else:
            yield f"<figure><figcaption>{caption}</figcaption>{each.html}</figure>"
