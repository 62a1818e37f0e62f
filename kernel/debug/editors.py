"""Editors that attach to ranks of a mesh: where each rank listens, and where cells are as files."""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .dap import HOST

if TYPE_CHECKING:
    from ..mesh import Mesh

_WAIT = 10.0
"""Seconds that debugpy may take to be imported and to listen."""

_folders: weakref.WeakKeyDictionary[Mesh, str] = weakref.WeakKeyDictionary()


def listen(mesh: Mesh, ranks: Sequence[int]) -> dict[int, int | str]:
    """Let editors attach to these ranks: the port of each on loopback, or in words why there is none."""
    told = mesh.tell_debugger(ranks, "listen", folder_of(mesh), timeout=_WAIT)
    return {rank: told.get(rank, "does not answer") for rank in ranks}


def folder_of(mesh: Mesh) -> str:
    """Where the cells of a mesh are files, as long as it is known here."""
    if mesh not in _folders:
        _folders[mesh] = tempfile.mkdtemp(prefix="meshbook-cells-")
        weakref.finalize(mesh, shutil.rmtree, _folders[mesh], ignore_errors=True)
    return _folders[mesh]


def snippet(mesh: str, ports: Mapping[int, int]) -> str:
    """What goes into VS Code's `launch.json` to attach to all of these.

    Example:
        >>> [each["name"] for each in json.loads(snippet("m", {1: 4711}))["configurations"]]
        ['mesh m, rank 1']
    """
    made = [_configuration(f"mesh {mesh}, rank {rank}", port) for rank, port in ports.items()]
    names = [each["name"] for each in made]
    compounds = [{"name": f"mesh {mesh}", "configurations": names}] if len(names) > 1 else []
    return json.dumps({"version": "0.2.0", "configurations": made, "compounds": compounds}, indent=2)


def _configuration(name: str, port: int) -> dict[str, Any]:
    connect = {"host": HOST, "port": port}
    return {"name": name, "type": "debugpy", "request": "attach", "connect": connect, "justMyCode": False}
