"""Looks at how many threads OpenMP would use. Ranks import this file by name."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path
from typing import Any

from meshbook.runtime import Actor, endpoint


def num_threads() -> int:
    """Of this thread, asked of the library itself: to ask torch would change it."""
    paths = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libgomp" in line}
    return ctypes.CDLL(paths.pop()).omp_get_max_threads()


def say(variable: str, number: int) -> None:
    """A bootstrap."""
    os.environ[variable] = str(number)


class Crowd(Actor):
    """Counts in its own thread, and in one that it starts."""

    @endpoint
    def counts(self) -> list[int]:
        import torch

        return [torch.get_num_threads(), num_threads(), *_in_a_thread()]

    @endpoint
    def own(self) -> int:
        return num_threads()

    @endpoint
    def setting(self) -> str | None:
        """What libraries (accelerate) and child processes find."""
        return os.environ.get("OMP_NUM_THREADS")


class AsyncCrowd(Actor):
    @endpoint
    async def own(self) -> Any:
        return num_threads()


def _in_a_thread() -> list[int]:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(num_threads()))
    thread.start()
    thread.join()
    return found
