"""Which code is the user's own: what is told of a stack is told of that."""

from __future__ import annotations

import sysconfig
from functools import cache
from pathlib import Path

from ..system.ours import HOME


@cache
def is_users(file: str) -> bool:
    """Did the user write this file? Not if it is the standard library's, an installed package's, or ours.

    Example:
        >>> is_users("<ipython-input-5-0000000c>"), is_users("train.py"), is_users(sysconfig.__file__)
        (True, True, False)
    """
    path = Path(file)
    if file.startswith("<frozen ") or {"site-packages", "dist-packages"} & set(path.parts):
        return False
    return not any(path.is_relative_to(home) for home in _homes_of_others())


@cache
def _homes_of_others() -> tuple[str, ...]:
    return (str(HOME), sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
