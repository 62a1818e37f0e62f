"""Where an operation of the program stands, shown on the ranks that compute it.

A rank that waits in a collective says at which of the user's lines: it looks at its stack. Of an operation on a
distributed tensor that line is the program's, which is in another process. So it is called from a frame that claims to
stand there, and ledgers, stacks and debuggers need to know nothing of it.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from functools import lru_cache
from types import FunctionType, TracebackType
from typing import Any

from ..cells import Line

_MARK = {"__name__": __name__, "__builtins__": builtins}


def standing_at(where: Line, function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, called from a frame that stands at this place.

    Example:
        >>> import traceback
        >>> call = standing_at(Line("train.py", 7, "step"), lambda: traceback.extract_stack()[-2])
        >>> call().filename, call().lineno, call().name
        ('train.py', 7, 'step')
    """
    frame = _frame(where)
    return lambda *args, **kwargs: frame(function, args, kwargs)


def beneath(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without such a frame, and what is above it: the program's line is told by the program."""
    here = traceback
    while here is not None and here.tb_frame.f_globals is not _MARK:
        here = here.tb_next
    return traceback if here is None else here.tb_next


def call(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:  # of two lines, see below
    return function(*args, **kwargs)


@lru_cache(512)
def _frame(where: Line) -> Callable[..., Any]:
    file, line, name = where
    first = line - 1  # its second line is the one that is wanted
    code = call.__code__.replace(co_filename=file, co_firstlineno=first, co_name=name, co_qualname=name)
    return FunctionType(code, _MARK)
