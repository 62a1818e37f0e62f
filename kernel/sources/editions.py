"""Which files of the user's modules have changed since this process imported them."""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import partial
from itertools import takewhile
from operator import ne

INSTALLED = tuple({f"{sysconfig.get_path(kind)}{os.sep}" for kind in ("stdlib", "platstdlib", "purelib", "platlib")})
"""Where modules of Python itself and of packages lie: they do not change under the user's hands."""

_PACKAGE = f"{__name__.partition('.')[0]}."


class Editions:
    """Remembers when the files of modules that come from now on had changed, for who looks for changes later."""

    def __init__(self) -> None:
        self._known: dict[str, float | None] = {}
        self._last = _last_module()

    def look(self) -> None:
        """After a cell, which may have imported some. Costs next to nothing where it has not."""
        for name in _modules_after(self._last):
            if not name.startswith(_PACKAGE):
                self._known[name] = _time_of(getattr(sys.modules.get(name), "__file__", None))
        self._last = _last_module()

    def stale(self) -> dict[str, float]:
        """The modules whose files have changed since, with the times of `time.time` at which they had before."""
        return {
            name: known
            for name, known in self._known.items()
            if known is not None and name in sys.modules and known < _changed(str(sys.modules[name].__file__))
        }


def _last_module() -> str:
    return next(reversed(sys.modules))


def _modules_after(last: str) -> list[str]:
    """The modules that came after it. Of the others nothing is touched: a rank would copy a page for nearly each."""
    return list(takewhile(partial(ne, last), reversed(sys.modules)))


def _time_of(file: object) -> float | None:
    if not isinstance(file, str) or not file.endswith(".py") or file.startswith(INSTALLED):
        return None
    return _changed(file)


def _changed(file: str) -> float:
    try:
        return os.stat(file).st_mtime
    except OSError:
        return 0.0
