"""Markup that ranks show, such as tables: may it stand beside that of others? Pure."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Final

_LONGEST: Final = 100_000
"""Characters of what is looked through: more is no small thing beside others."""

_VOID: Final = frozenset({"area", "br", "col", "hr", "img", "input", "progress", "source", "track", "wbr"})
"""Tags that need no end. (Of `progress` it is often forgotten, and nothing that matters is inside.)"""

_ALIVE: Final = re.compile(
    "audio|button|canvas|form|input|select|textarea|video"
    "|applet|embed|frame|iframe|object|script"
    "|base|frameset|link|meta|noscript|plaintext|template|xmp"
)
"""Tags of what moves or answers, which must not be drawn anew, and of what reaches beyond its own place."""

_END: Final = "meshbook-end"
"""A tag that stands behind all of it: what a comment without an end swallows, it swallows too."""

_DRAWINGS: Final = frozenset({"svg", "math"})
"""In these any tag may end itself."""


def is_still(source: str) -> bool:
    """Is this a piece of a page that ends what it begins, and does nothing by itself?

    Example:
        >>> is_still("<table><tr><td>0.5</td></tr></table>")
        True
        >>> is_still("<div>no end"), is_still("<script>draw()</script>"), is_still('<b onclick="f()">more</b>')
        (False, False, False)
    """
    if len(source) > _LONGEST:
        return False
    reader = _Reader()
    try:
        reader.feed(f"{source}<{_END}>")
    except AssertionError:  # Python's own, of a declaration that it cannot read
        return False
    return reader.is_still and reader.open == [_END]


class _Reader(HTMLParser):
    """Follows the tags."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.open: list[str] = []
        self.is_still = True

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._look_at(tag, attrs)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._look_at(tag, attrs)
        if tag not in _VOID and not _DRAWINGS.intersection(self.open):
            self.is_still = False  # browsers take `<div/>` for a beginning

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.is_still = False

    def _look_at(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if _ALIVE.fullmatch(tag) or any(name.startswith("on") for name, _ in attrs):
            self.is_still = False
