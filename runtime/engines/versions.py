"""What must be the same at both ends: who speaks to ranks, and who starts them."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import NamedTuple


class Versions(NamedTuple):
    """Of meshbook, Python and torch; empty where a package is not installed."""

    meshbook: str
    python: str
    torch: str


def own_versions() -> Versions:
    """Those of this process."""
    return Versions(_version("meshbook"), platform.python_version(), _version("torch"))


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def mismatch(theirs: Versions, own: Versions) -> str:
    """Why a process of these versions cannot work for this controller, in a few words; or nothing.

    Example:
        >>> mismatch(Versions("0.1.0", "3.12.1", "2.9.0"), Versions("0.1.0", "3.11.7", "2.9.0"))
        'it runs Python 3.12.1, and this notebook 3.11.7'
        >>> mismatch(Versions("0.1.0", "3.11.2", "2.9.0"), Versions("0.1.0", "3.11.7", "2.9.0"))
        ''
    """
    if theirs.meshbook != own.meshbook:
        return f"it runs meshbook {theirs.meshbook or 'of no version'}, and this notebook {own.meshbook}"
    if theirs.python.rpartition(".")[0] != own.python.rpartition(".")[0]:  # functions travel as its bytecode
        return f"it runs Python {theirs.python}, and this notebook {own.python}"
    if theirs.torch != own.torch:
        return f"it has torch {theirs.torch or 'not installed'}, and this notebook {own.torch or 'none'}"
    return ""
