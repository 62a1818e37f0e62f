"""`%mesh sync` and `%mesh autoreload`: modules that were edited come to the ranks."""

from __future__ import annotations

import sys
from typing import Any

import IPython
from IPython.core.error import UsageError

from ..kernel.mesh import Mesh
from ..runtime.engines.courier import Delivery
from ..runtime.errors import MeshbookError
from . import grammar
from .book import Book

_MOST_NAMES = 3

_TOLD = "as `%autoreload` is here"
_UNTOLD = f"IPython {IPython.__version__} does not tell if `%autoreload` is on here: `%mesh autoreload on` renews them"


def sync(book: Book, args: grammar.Sync) -> None:
    """Bring the folder of a mesh to its hosts again, and say what was new."""
    print(told(_brought(book.get(args.mesh))))


def autoreload(shell: Any, book: Book, args: grammar.Autoreload) -> None:
    """Set whether ranks renew modules before each cell, and say so."""
    if args.state is not None:
        book.reloading = args.state
    is_on = _is_wanted(shell, book)
    try:
        for mesh in book.meshes.values():
            if not mesh.is_down:
                mesh.autoreload(is_on)
    except MeshbookError as error:
        raise UsageError(str(error)) from None
    why = f" (auto: {_UNTOLD if _is_on_here(shell) is None else _TOLD})" if book.reloading == "auto" else ""
    what = (
        "before each cell, ranks renew modules whose files have changed" if is_on else "ranks keep modules as they are"
    )
    print(f"autoreload is {'on' if is_on else 'off'}{why}: {what}")


def freshen(shell: Any, book: Book, mesh: Mesh) -> None:
    """Before a cell: let the ranks have the modules of now, if they are to."""
    is_on = _is_wanted(shell, book)
    if not book.knows_untold and book.reloading == "auto" and _is_on_here(shell) is None:
        book.knows_untold = True
        print(f"ranks keep modules as they are: {_UNTOLD}", file=sys.stderr)
    if is_on == mesh.is_reloading and not (is_on and mesh.folder):
        return  # as nearly always
    try:
        mesh.autoreload(is_on)  # before the files come: those that are replaced are then seen to be
    except MeshbookError as error:
        raise UsageError(str(error)) from None
    if is_on and mesh.folder:
        _brought(mesh)


def _brought(mesh: Mesh) -> Delivery:
    try:
        return mesh.sync()
    except (ValueError, MeshbookError) as error:
        raise UsageError(str(error)) from None


def _is_wanted(shell: Any, book: Book) -> bool:
    return bool(_is_on_here(shell)) if book.reloading == "auto" else book.reloading == "on"


def _is_on_here(shell: Any) -> bool | None:
    """Is `%autoreload 2`, or more, on in the notebook? None where this IPython keeps that to its own magics."""
    magics = shell.magics_manager.registry.get("AutoreloadMagics")
    if magics is None:
        return False
    reloader = getattr(magics, "_reloader", None)
    enabled, check_all = getattr(reloader, "enabled", None), getattr(reloader, "check_all", None)
    return None if enabled is None or check_all is None else bool(enabled and check_all)


def told(delivery: Delivery) -> str:
    """What was brought, in a few lines.

    Example:
        >>> from pathlib import Path
        >>> print(told(Delivery(Path("/work/net"), 2, 12, ("a.py", "b.py"), ("c.py",), ("d.bin (90 MB, over 10 MB)",))))
        synced net to 2 hosts: 2 of 12 files were new or changed (a.py, b.py), 1 was removed (c.py)
        left out: d.bin (90 MB, over 10 MB)
    """
    hosts = f"{delivery.num_hosts} host{'s' if delivery.num_hosts > 1 else ''}"
    changes: list[str] = []
    if delivery.changed:
        were = "were" if len(delivery.changed) > 1 else "was"
        number = f"{len(delivery.changed)} of {delivery.num_files} files"
        changes.append(f"{number} {were} new or changed ({_few(delivery.changed)})")
    if delivery.removed:
        were = "were" if len(delivery.removed) > 1 else "was"
        changes.append(f"{len(delivery.removed)} {were} removed ({_few(delivery.removed)})")
    lines = [f"synced {delivery.folder.name} to {hosts}: {', '.join(changes) or 'nothing has changed'}"]
    if delivery.left_out:
        lines.append(f"left out: {_few(delivery.left_out)}")
    return "\n".join(lines)


def _few(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown}, and {len(names) - _MOST_NAMES} more"
