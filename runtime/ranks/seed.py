"""What forked ranks must not share: random numbers, and the use of every core."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import random
import secrets
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from ..system.cores import cores
from .imports import when_imported

_BLAS_SETTERS = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)


_OF_TORCH = ("MKL_NUM_THREADS", "OMP_NUM_THREADS")
_OF_BLAS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
"""The variables that say how many threads to compute with, the first before the second, as the libraries read them."""

_unsaid: list[str] = []
"""Those that nobody but us has set for this rank (`UNLESS_SAID`)."""


def prepare_torch(local_world_size: int, rank: int, env: Mapping[str, str]) -> None:
    """Give this rank its share of the cores and its own random numbers, in torch, numpy and `random`.

    Where `env`, as the program wants it, says with how many threads to compute, that is its share.

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
    _unsaid[:] = [name for name in {*_OF_TORCH, *_OF_BLAS} if name not in env]
    _share(_number_in(env, _OF_TORCH) or share, _number_in(env, _OF_BLAS) or share)


def _share(for_torch: int, for_blas: int) -> None:
    """Numbers of threads; 0: as it is."""
    if for_torch:
        when_imported("torch", lambda: _share_torch(for_torch))
    if for_blas:
        when_imported("numpy", lambda: share_openblas(for_blas))


@contextlib.contextmanager
def heeding() -> Generator[None]:
    """What a bootstrap says in this block holds: a library that was loaded before the fork does not read it again.

    Our own variables are out of the way meanwhile: who sets one to the same number means it.
    """
    ours = {name: value for name in _unsaid if (value := os.environ.pop(name, None)) is not None}
    before = dict(os.environ)
    try:
        yield
        said = {name: value for name, value in os.environ.items() if before.get(name) != value}
        _share(_number_in(said, _OF_TORCH), _number_in(said, _OF_BLAS))
    finally:
        for name, value in ours.items():
            os.environ.setdefault(name, value)


def _number_in(env: Mapping[str, str], names: Sequence[str]) -> int:
    """The number of threads that the first of these variables says; 0: none does.

    Example:
        >>> _number_in({"OMP_NUM_THREADS": "4,2"}, _OF_TORCH), _number_in({"OMP_NUM_THREADS": "all"}, _OF_TORCH)
        (4, 0)
    """
    firsts = (env.get(name, "").partition(",")[0].strip() for name in names)
    return next((int(first) for first in firsts if first.isdecimal() and int(first)), 0)


def _reseed(rank: int) -> None:
    random.seed()
    if "numpy.random" in sys.modules:
        numpy: Any = sys.modules["numpy"]
        # The whole state; `seed()` goes the long way, and copies 45 pages more of the zygote.
        numpy.random.set_state(("MT19937", numpy.frombuffer(os.urandom(624 * 4), numpy.uint32), 624))
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
    for setter in _setters_of_openblas():
        setter(num_threads)
    return bool(_setters_of_openblas())


def warm() -> None:
    """Do once, in the zygote, what each rank does: look for libraries in its memory map, and draw a seed."""
    _setters_of_openblas()
    _reseed(0)


@functools.cache
def _setters_of_openblas() -> list[Callable[[int], object]]:
    libraries = [ctypes.CDLL(path) for path in _loaded_libraries("openblas")]
    names = [next((name for name in _BLAS_SETTERS if hasattr(library, name)), "") for library in libraries]
    return [library[name] for library, name in zip(libraries, names, strict=True) if name]


def _loaded_libraries(part_of_name: str) -> list[str]:
    try:
        with open("/proc/self/maps") as maps:
            fields = [line.split(maxsplit=5) for line in maps]
    except FileNotFoundError:
        return []
    paths = {entry[5].strip() for entry in fields if len(entry) == 6}
    return sorted(path for path in paths if part_of_name in os.path.basename(path))
