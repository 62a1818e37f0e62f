"""Which files and modules are meshbook's own.

Only its wings are: the folder of the package may hold an environment or notebooks of the user's as well. Who asks what
the user wrote, and not what is ours, asks `ranks.users`.
"""

from __future__ import annotations

from pathlib import Path

HOME = Path(__file__).parents[2]
"""The folder of the package."""

WINGS = tuple(f"{HOME / wing}/" for wing in ("runtime", "kernel", "widgets", "magics"))
"""What the paths of our own files begin with."""

_PACKAGE = __name__.partition(".")[0]


def is_ours(file: str) -> bool:
    """Is it a file of meshbook itself?

    Example:
        >>> is_ours(__file__), is_ours(f"{HOME}/notebooks/a.py"), is_ours("a.py")
        (True, False, False)
    """
    return file.startswith(WINGS)


def is_our_module(name: str) -> bool:
    """Is this the name of a module of meshbook, or of meshbook itself?

    Example:
        >>> is_our_module(__name__), is_our_module("meshbook"), is_our_module("meshbooks")
        (True, True, False)
    """
    return name.partition(".")[0] == _PACKAGE
