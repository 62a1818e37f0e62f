"""The files of the user's modules as they were when this process imported them."""

from __future__ import annotations

import os
import sys
import sysconfig
import tokenize
from functools import partial
from itertools import takewhile
from operator import ne
from typing import NamedTuple

INSTALLED = tuple({f"{sysconfig.get_path(kind)}{os.sep}" for kind in ("stdlib", "platstdlib", "purelib", "platlib")})
"""Where modules of Python itself and of packages lie: they do not change under the user's hands."""

_PACKAGE = f"{__name__.partition('.')[0]}."


class Edition(NamedTuple):
    """When a file was changed last, in seconds of `time.time`, and what it said then."""

    time: float
    text: str


class Editions:
    """Remembers the files of modules that come from now on, for who begins to look for changes later."""

    def __init__(self) -> None:
        self._known: dict[str, Edition | None] = {}
        self._last = _last_module()

    def look(self) -> None:
        """After a cell, which may have imported some. Costs next to nothing where it has not."""
        for name in _modules_after(self._last):
            if not name.startswith(_PACKAGE):
                self._known[name] = _edition_of(getattr(sys.modules.get(name), "__file__", None))
        self._last = _last_module()

    def stale(self) -> dict[str, Edition]:
        """The modules whose files have changed since, as they were."""
        return {
            name: known
            for name, known in self._known.items()
            if known is not None and name in sys.modules and known.time < _changed(str(sys.modules[name].__file__))
        }


def _last_module() -> str:
    return next(reversed(sys.modules))


def _modules_after(last: str) -> list[str]:
    """The modules that came after it. Of the others nothing is touched: a rank would copy a page for nearly each."""
    return list(takewhile(partial(ne, last), reversed(sys.modules)))


def _edition_of(file: object) -> Edition | None:
    if not isinstance(file, str) or not file.endswith(".py") or file.startswith(INSTALLED):
        return None
    try:
        with tokenize.open(file) as opened:
            return Edition(_changed(file), opened.read())
    except (OSError, SyntaxError, UnicodeDecodeError):  # gone since, or of an encoding that it does not have
        return None


def _changed(file: str) -> float:
    try:
        return os.stat(file).st_mtime
    except OSError:
        return 0.0
