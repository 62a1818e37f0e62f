"""`%mesh auto on`: plain cells run on the mesh too, but for those that are about the notebook itself."""

from __future__ import annotations

import re

from .book import Book
from .manage import Auto

HERE = "%%local"
"""The first line of a cell that runs in the notebook's own process all the same."""

_ABOVE = r"(?:[ \t]*(?:#[^\n]*)?\n)*"
_CODE = re.compile(rf"{_ABOVE}[ \t]*([^\s#][^\n]*)")
_OURS = re.compile(r"^[ \t]*(?:[\w.,\[\] \t]+=[ \t]*)?%(?:on_)?mesh\b", re.MULTILINE)
_HELP = re.compile(r"[^\s#]+\?\s*")
_HERE = re.compile(rf"({_ABOVE}){HERE}[ \t]*(?:\n|$)")


def is_for_ranks(text: str) -> bool:
    """Whether a cell is for the mesh: it has code, and does not begin with a magic, a command of the system or a `?`.

    No line of it is one of `%mesh` or `%on_mesh`, which ranks do not have.

    Example:
        >>> [is_for_ranks(text) for text in ("x = 1", "# a note\\n\\nloss", "%time x", "!ls", "model?", "# a note")]
        [True, True, False, False, False, False]
        >>> is_for_ranks("losses = %mesh pull loss")
        False
    """
    found = _CODE.match(text)
    if _OURS.search(text):
        return False
    return found is not None and not found[1].startswith(("%", "!", "?")) and not _HELP.fullmatch(found[1])


def local_part(text: str) -> str | None:
    """What runs here of a cell that begins with `%%local`, each line where it was; None of another cell.

    Example:
        >>> local_part("%%local\\nx = 1"), local_part("x = 1")
        ('\\nx = 1', None)
    """
    found = _HERE.match(text)
    if found is None:
        return None
    body = text[found.end() :]
    return body if body.startswith("%%") else f"{found[1]}\n{body}"  # a cell magic has to stand first


def switch(book: Book, args: Auto) -> str:
    """Turn it on or off, or say which it is. Raises `UsageError` where there is no mesh to run on."""
    if args.is_on:
        book.get()
    if args.is_on is not None:
        book.is_auto = args.is_on
    if not book.is_auto:
        return "auto is off: plain cells run here, and on the mesh where they begin with %%on_mesh"
    mesh = book.get()
    place = f"{mesh.name}[{book.slice}]" if book.slice else mesh.name
    return (
        f"auto is on: plain cells run on {place}; here run those that begin with %, ! or ?, and with {HERE}; "
        "`%mesh auto off` ends it"
    )
