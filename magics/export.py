"""`%mesh export`: the cells that ran on a mesh, written as a script."""

from __future__ import annotations

import os
from pathlib import Path

from IPython.core.error import UsageError

from ..kernel.mesh import Mesh
from ..kernel.sources.export import MARK, Setting, script
from .book import Book
from .manage import Export


def export(book: Book, args: Export) -> Path:
    """Write the script; where it is. Raises `UsageError` where it may not be written, or there is nothing to write."""
    mesh = book.get(args.mesh)
    path = Path(os.path.expanduser(args.file))  # Path's own raises for a user that there is not
    if path.suffix != ".py":
        raise UsageError(f"'{args.file}' is no Python file: write a name that ends in .py")
    numbers = None if isinstance(args.only, str) else args.only
    ran = [entry for entry in mesh.journal.entries if entry.source]  # else it is a call, of which the script tells
    entries = [entry for entry in ran if numbers is None or entry.number in numbers]
    if not entries:
        raise UsageError("no cell to export: none of these ran on the mesh with %%on_mesh")
    text = script(_setting(mesh), mesh.journal.notes, numbers, name=path.name)
    _write(path, text, is_forced=args.force)
    size = mesh.num_ranks
    failed = [entry.name for entry in entries if entry.went_wrong]
    count = len(entries) - len(failed)
    cells, them = ("1 cell", "it") if count == 1 else (f"{count} cells", "them")
    print(f"{cells} written to {path}: run {them} with `torchrun --nproc-per-node {size} {path}`")
    if failed:
        print(f"left out, as {'it' if len(failed) == 1 else 'they'} failed here: {', '.join(failed)}")
    if left := [word for word in ("TODO", "WARNING") if f"\n# {word}" in text]:
        print(f"not all of it could be taken over: look for {' and '.join(left)} in the script")
    return path


def _write(path: Path, text: str, *, is_forced: bool) -> None:
    try:
        if path.exists() and not is_forced and not path.read_text(errors="replace").startswith(MARK):
            raise UsageError(f"{path} is there, and `%mesh export` did not write it: --force writes over it")
        path.write_text(text)
    except OSError as error:  # it is a folder, is in none, may not be read, ...
        raise UsageError(f"{path} was not written: {error.strerror}") from None


def _setting(mesh: Mesh) -> Setting:
    spec = next(iter(mesh.roster.specs.values()))
    return Setting(mesh.axes, spec.device.partition(":")[0], mesh.roster.groups.backend)
