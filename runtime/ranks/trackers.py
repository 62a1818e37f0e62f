"""The resource tracker of `multiprocessing`: it outlives a rank that is killed, to remove what that leaves in /dev/shm.

A DataLoader whose workers come by `forkserver` or `spawn` has named semaphores, which stay until somebody removes them.
The tracker does so, and ends, when all that hold its pipe are gone: the rank, and what it started. In their process
group it would be killed with them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from .imports import when_imported

_PROGRAM = "from multiprocessing.resource_tracker import main;"


def install() -> None:
    """From now on a tracker that this process starts has a process group of its own."""
    when_imported("multiprocessing.util", _install)


def _install() -> None:
    util: Any = sys.modules["multiprocessing.util"]
    start = util.spawnv_passfds

    def spawnv_passfds(path: Any, args: Sequence[Any], passfds: Any) -> int:
        return start(path, apart(args), passfds)

    util.spawnv_passfds = spawnv_passfds


def apart(args: Sequence[Any]) -> list[Any]:
    """The words that start Python: where it is to be a tracker, that leaves the process group first. All else stays.

    >>> apart(["python", "-c", "from multiprocessing.resource_tracker import main;main(5)"])[-1]
    'import os;os.setpgid(0, 0);from multiprocessing.resource_tracker import main;main(5)'
    >>> apart(["python", "-c", "print(1)"])
    ['python', '-c', 'print(1)']
    """
    *others, program = args
    return [*others, f"import os;os.setpgid(0, 0);{program}" if str(program).startswith(_PROGRAM) else program]
