"""`torch.manual_seed` of the program holds for its meshes: how often it was called is counted here.

The number alone does not say it: who runs a cell again wants the same numbers again.
"""

from __future__ import annotations

import functools
from typing import Any, cast

import torch

_seed: Any = cast("Any", torch).manual_seed
_num_calls = 0


@functools.wraps(_seed)
def _counted(seed: Any) -> torch.Generator:
    global _num_calls
    _num_calls += 1
    return _seed(seed)


for _module in (torch, torch.random):
    cast("Any", _module).manual_seed = _counted


def seeding() -> tuple[int, int]:
    """How often the program has been seeded since this was imported, and its seed.

    Example:
        >>> before = seeding()
        >>> _ = torch.manual_seed(7)
        >>> seeding() == (before[0] + 1, 7)
        True
    """
    return _num_calls, torch.initial_seed()
