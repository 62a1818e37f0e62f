"""Processes that user code on a rank spawns: what they could find in no file goes to them by value, as it came here.

Classes and functions of a script or a notebook come to ranks by value. The pickle of `multiprocessing` only names them,
and where a process begins afresh (by `forkserver`, the default of Python 3.14, or `spawn`) there is no `__main__` that
has them; on ranks that run no cells not even here. A `DataLoader` sends its dataset so.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from operator import attrgetter
from types import FunctionType
from typing import Any

from ..wire import codec
from .imports import when_imported


@cache
def install() -> None:
    """From now on `multiprocessing` of this process pickles so."""
    when_imported("multiprocessing.reduction", _install)


def _install() -> None:
    pickler: Any = sys.modules["multiprocessing.reduction"]
    pickler.ForkingPickler.reducer_override = _reduced


def _reduced(_pickler: object, obj: Any) -> Any:
    if not isinstance(obj, FunctionType | type):
        return NotImplemented
    if is_found(obj) and not (obj.__module__ == "__main__" and _is_for_a_stranger()):
        return NotImplemented
    return rebuilt, (codec.dumps(obj),)


def rebuilt(data: bytes) -> Any:
    """What was sent by value; from here on it goes back so, too."""
    install()
    return codec.loads(data)


def is_found(obj: Any) -> bool:
    """Is it in its module, under its name?

    Example:
        >>> is_found(is_found), is_found(lambda: 0)
        (True, False)
    """
    try:
        return attrgetter(obj.__qualname__)(import_module(obj.__module__)) is obj
    except (ImportError, AttributeError):
        return False


def _is_for_a_stranger() -> bool:
    """Is it for a process that does not have our `__main__`, as it is of no file?

    One that is being started has not, nor have those that run already where none was forked. One that was forked has
    it, and whatever it refers to; and what is put into a queue may be for anybody.
    """
    main = sys.modules["__main__"]
    has_file = main.__spec__ is not None or getattr(main, "__file__", None) is not None
    if has_file:
        return False
    context: Any = sys.modules["multiprocessing.context"]
    return context.get_spawning_popen() is not None or _all_are_strangers()


def _all_are_strangers() -> bool:
    process: Any = sys.modules["multiprocessing.process"]
    started = {getattr(child._popen, "method", "fork") for child in list(process._children)}
    return bool(started) and "fork" not in started
