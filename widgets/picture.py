"""A picture in a page of HTML."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from html import escape
from typing import Final

PICTURES: Final = ("image/svg+xml", "image/png", "image/jpeg", "image/gif", "image/webp")
"""The forms of a picture, the best one first."""

_GROUNDS: Final = {"light": "#fff", "dark": "#111"}
"""Colours behind what is transparent, by what matplotlib says that it needs."""


def is_picture(mime: Mapping[str, str]) -> bool:
    """Is there a picture, and nothing else but text in its place?

    Example:
        >>> is_picture({"image/png": "UE5H", "text/plain": "<Figure>"}), is_picture({"text/plain": "1"})
        (True, False)
        >>> is_picture({"image/png": "UE5H", "text/html": "<div>what moves</div>"})
        False
    """
    forms = mime.keys() - {"text/plain"}
    return bool(forms) and forms <= set(PICTURES)


def form_of(mime: Mapping[str, str]) -> str:
    """The best form of a picture that there is."""
    return next(form for form in PICTURES if form in mime)


def picture_html(form: str, data: str, alt: str = "", width: int | None = None, ground: object = None) -> str:
    """A picture as an `<img>` that needs no other file.

    Example:
        >>> picture_html("image/png", "UE5H", "a loss", width=320)
        '<img alt="a loss" width="320" src="data:image/png;base64,UE5H">'

    Args:
        form: its MIME type.
        data: in base64 as Jupyter sends it; of SVG the source.
        alt: what is read to who does not see it.
        width: in pixels of the page, where it is another one than the picture's own.
        ground: `light` or `dark`, of a transparent picture whose lines would be lost on the other.
    """
    # SVG too is an image here and not markup: scripts in it stay dead, and its ids cannot collide with another rank's.
    encoded = b64encode(data.encode("utf-8", "replace")).decode() if form == "image/svg+xml" else "".join(data.split())
    look = "" if width is None else f' width="{width}"'
    if (colour := _GROUNDS.get(str(ground))) is not None:
        look += f' style="background:{colour}"'
    return f'<img alt="{escape(alt)}"{look} src="data:{form};base64,{escape(encoded)}">'
