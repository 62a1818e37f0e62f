"""Fresh interpreters for processes of ours: what happens to lie in the working directory is none of their modules."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Mapping
from pathlib import Path

_PACKAGE = Path(__file__).parents[2]


def line_for(executable: str, module: str, *args: object) -> list[str]:
    """The command that runs a module of ours.

    Example:
        >>> line_for("python", "meshbook.runtime.engines.zygote", 3)
        ['python', '-P', '-m', 'meshbook.runtime.engines.zygote', '3']
    """
    return [executable, "-P", "-m", module, *map(str, args)]


def env_for(env: Mapping[str, str]) -> dict[str, str]:
    """The environment for it: with the folder that this package is in, where that is found by `sys.path` alone."""
    home = str(_PACKAGE.parent)
    folders = [os.path.abspath(each) for each in sys.path if isinstance(each, str)]  # pyright: ignore[reportUnnecessaryIsInstance]
    is_installed = home in (*site.getsitepackages(), site.getusersitepackages())
    if is_installed or home not in folders or _PACKAGE.name != __name__.partition(".")[0]:
        return dict(env)
    others = [each for each in env.get("PYTHONPATH", "").split(os.pathsep) if each and each != home]
    return {**env, "PYTHONPATH": os.pathsep.join([home, *others])}
