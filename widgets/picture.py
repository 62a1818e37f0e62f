"""A picture in a page of HTML."""

from __future__ import annotations

from base64 import b64encode
from html import escape
from typing import Final

PICTURES: Final = ("image/svg+xml", "image/png", "image/jpeg", "image/gif", "image/webp")
"""The forms of a picture, the best one first."""


def picture_html(form: str, data: str, alt: str = "", width: int | None = None) -> str:
    """A picture as an `<img>` that needs no other file.

    Example:
        >>> picture_html("image/png", "UE5H", "a loss", width=320)
        '<img alt="a loss" width="320" src="data:image/png;base64,UE5H">'

    Args:
        form: its MIME type.
        data: in base64 as Jupyter sends it; of SVG the source.
        alt: what is read to who does not see it.
        width: in pixels of the page, where it is another one than the picture's own.
    """
    # SVG too is an image here and not markup: scripts in it stay dead, and its ids cannot collide with another rank's.
    encoded = b64encode(data.encode("utf-8", "replace")).decode() if form == "image/svg+xml" else "".join(data.split())
    size = "" if width is None else f' width="{width}"'
    return f'<img alt="{escape(alt)}"{size} src="data:{form};base64,{escape(encoded)}">'
