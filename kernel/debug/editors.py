"""Editors that attach to ranks of a mesh: where each rank listens, and where cells are as files."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .bridge import program

if TYPE_CHECKING:
    from ..mesh import Mesh

_WAIT = 10.0
"""Seconds that debugpy may take to be imported and to listen."""

_folders: weakref.WeakKeyDictionary[Mesh, str] = weakref.WeakKeyDictionary()


def listen(
    mesh: Mesh, ranks: Sequence[int], places: Mapping[str, str] | None = None
) -> tuple[dict[int, str], dict[int, str]]:
    """Let editors attach to these ranks: the path of each one's socket, and in words why others have none.

    `places` has the files of cells by their names; without it, all are in the mesh's own folder.
    """
    told = mesh.tell_debugger(ranks, "listen", folder_of(mesh), places, timeout=_WAIT)
    sockets = {rank: told[rank][1] for rank in ranks if rank in told and told[rank][0]}
    without = {rank: told[rank][1] if rank in told else "does not answer" for rank in ranks if rank not in sockets}
    return sockets, without


def folder_of(mesh: Mesh) -> str:
    """Where the cells of a mesh are files, as long as it is known here. Nobody else can enter it."""
    if mesh not in _folders:
        _folders[mesh] = tempfile.mkdtemp(prefix="meshbook-cells-")
        weakref.finalize(mesh, shutil.rmtree, _folders[mesh], ignore_errors=True)
    return _folders[mesh]


def bridges(mesh: Mesh, sockets: Mapping[int, str]) -> dict[int, str]:
    """Programs that an editor can start to talk with each rank: their files."""
    files: dict[int, str] = {}
    for rank, path in sockets.items():
        file = Path(folder_of(mesh)) / f"talk_to_rank_{rank}.py"
        file.write_text(program(path))
        files[rank] = str(file)
    return files


def snippet(mesh: str, programs: Mapping[int, str], pids: Mapping[int, int]) -> str:
    """What goes into VS Code's `launch.json` to attach to all of these.

    VS Code starts the adapter of an attachment by process, and that of ours is the bridge to the rank:
    https://github.com/microsoft/vscode-python-debugger/blob/main/src/extension/debugger/adapter/factory.ts

    Example:
        >>> [each["name"] for each in json.loads(snippet("m", {1: "/tmp/talk.py"}, {1: 4711}))["configurations"]]
        ['mesh m, rank 1']
    """
    made = [_configuration(f"mesh {mesh}, rank {rank}", file, pids[rank]) for rank, file in programs.items()]
    names = [each["name"] for each in made]
    compounds = [{"name": f"mesh {mesh}", "configurations": names}] if len(names) > 1 else []
    return json.dumps({"version": "0.2.0", "configurations": made, "compounds": compounds}, indent=2)


def _configuration(name: str, file: str, pid: int) -> dict[str, Any]:
    adapter = {"debugAdapterPython": sys.executable, "debugAdapterPath": file}
    return {"name": name, "type": "debugpy", "request": "attach", "processId": pid, **adapter, "justMyCode": False}
