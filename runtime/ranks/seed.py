"""What forked ranks must not share: random numbers, and the use of every core."""

from __future__ import annotations

import ctypes
import functools
import os
import random
import secrets
import sys
from typing import Any

from ..cores import cores
from .imports import when_imported

_BLAS_SETTERS = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)


def prepare_torch(local_world_size: int, rank: int) -> None:
    """Give this rank its share of the cores and its own random numbers, in torch, numpy and `random`.

    The random numbers differ between ranks and between runs, as in processes that were started one by one;
    who wants them equal or repeatable calls `torch.manual_seed` in a cell. What is not imported yet gets its
    share of the cores when it is imported, and seeds itself.

    Raises:
        ValueError: `local_world_size` is not positive.
    """
    if local_world_size < 1:
        raise ValueError(f"local_world_size must be 1 or more, not {local_world_size}")
    share = max(1, cores() // local_world_size)
    _reseed(rank)
    when_imported("torch", lambda: _share_torch(share))
    when_imported("numpy", lambda: share_openblas(share))


def _reseed(rank: int) -> None:
    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        # The rank in the low bits: two ranks cannot draw the same seed.
        sys.modules["torch"].default_generator.manual_seed(secrets.randbits(47) << 16 | rank)


def _share_torch(share: int) -> None:
    # OMP_NUM_THREADS is read when the library is loaded, before the fork: only the call counts here.
    torch: Any = sys.modules["torch"]
    torch.set_num_threads(share)


def share_openblas(num_threads: int) -> bool:
    """Set the number of threads of each OpenBLAS that this process has loaded; False where there is none.

    numpy bundles it under a name of its own, scipy under another, and a zygote keeps it at one thread (OpenBLAS starts
    its threads at import, and a process with threads must not fork), so its children have to ask for more.
    """
    num_set = 0
    for path in _loaded_libraries("openblas"):
        library = ctypes.CDLL(path)
        setter = next((name for name in _BLAS_SETTERS if hasattr(library, name)), None)
        if setter is not None:
            library[setter](ctypes.c_int(num_threads))
            num_set += 1
    return num_set > 0


def warm() -> None:
    """Look up once, in the zygote, what each rank would look for in its memory map."""
    _loaded_libraries("openblas")


@functools.cache
def _loaded_libraries(part_of_name: str) -> list[str]:
    try:
        with open("/proc/self/maps") as maps:
            fields = [line.split(maxsplit=5) for line in maps]
    except FileNotFoundError:
        return []
    paths = {entry[5].strip() for entry in fields if len(entry) == 6}
    return sorted(path for path in paths if part_of_name in os.path.basename(path))
