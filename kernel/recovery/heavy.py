"""What each rank imports for itself at a restart, where one process could have imported it for all."""

from __future__ import annotations

from collections.abc import Iterable

from ...runtime.engines.local import why_exec
from ...runtime.engines.preload import packaged
from ...runtime.engines.spec import RankSpec
from ..sources.effects import imported

HEAVY_SECONDS = 2.0
"""How long a cell that imports them takes on a new rank at least, for it to be worth a word."""

_THERE = {"torch", "numpy", "IPython", "meshbook"}
"""What a zygote has imported anyhow."""


def heavy_imports(replayed: Iterable[tuple[str, float]], spec: RankSpec) -> tuple[str, ...]:
    """The installed packages that slow cells import on new ranks, as `%mesh up --import` takes them.

    `replayed` are the cells, each with the seconds it took. Empty where ranks are not forked: nothing would be gained.

    Example:
        >>> from meshbook.runtime.session import specs_for
        >>> heavy_imports([("import json, psutil", 9.0), ("import msgspec", 0.1)], specs_for({"dp": 1})[0])
        ('psutil',)
    """
    if why_exec():
        return ()
    names = [name for source, seconds in replayed if seconds >= HEAVY_SECONDS for name in imported(source)]
    new = [name for name in names if name.partition(".")[0] not in _THERE and name not in spec.preload]
    return packaged(new, spec.path, spec.cwd)
