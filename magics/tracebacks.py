"""Tracebacks of calls in a notebook: the user's lines down to the call, then the error; none of our own frames.

IPython leaves out frames that say `__tracebackhide__`, but never the innermost, and that is where we raise.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from IPython.core.getipython import get_ipython

from ..runtime.ranks.users import is_users
from ..runtime.system.ours import HOME, is_our_module

_LEADING_TO_US = "torch._compile", "torch._dynamo."
"""Modules by way of which torch calls our `__torch_dispatch__`."""


def mark(error: BaseException) -> None:
    """Let IPython ask us how to show this error. One that shows itself otherwise stays as it is."""
    if not hasattr(error, "_render_traceback_"):
        error._render_traceback_ = render  # type: ignore[attr-defined] # what IPython looks for


def render() -> list[str]:
    """The traceback of the error that is being shown.

    Not a method of it, which would keep the frames of the error for as long as the error itself.
    """
    kind, error, trace = sys.exc_info()
    if error is None:  # `%tb`, later
        kind, error, trace = sys.last_type, sys.last_value, sys.last_traceback
    shell: Any = get_ipython()
    cut = up_to_call(trace)
    if error is not None:
        _leave_out_what_we_handled(error, trace, cut)
    trace = cut
    try:
        lines = shell.InteractiveTB.structured_traceback(kind, error, trace)
    except KeyboardInterrupt:  # it takes 100 ms at first, and who pressed stop meant the cell: Python's form has all
        lines = "".join(traceback.format_exception(kind, error, _from_users(trace))).splitlines()
    return lines if error is None else [*lines, *hint_of[-1](error)]


def no_hint(error: BaseException) -> list[str]:
    """Nothing more is to be said of an error."""
    return []


hint_of: list[Callable[[BaseException], list[str]]] = [no_hint]
"""The last entry gives lines that follow an error: what to type next."""


def up_to_call(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames of ours that it ends with, and what these have called, where that is no user's.

    The whole, where there are no others.
    """
    frames: list[TracebackType] = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    users = max((place for place, each in enumerate(frames) if _is_users(each)), default=-1)
    end = next((place for place, each in enumerate(frames) if place > users and _is_ours(each)), 0) or len(frames)
    cut: TracebackType | None = None
    for each in reversed(frames[:end]):
        cut = TracebackType(cut, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return cut


def _leave_out_what_we_handled(error: BaseException, whole: TracebackType | None, shown: TracebackType | None) -> None:
    """An error that was being handled below the frames shown is none that the user has seen: Ctrl-C within an
    `except` of a library that we called, say.
    """
    below = set(_frames(whole)) - set(_frames(shown))
    while (handled := error.__context__) is not None and below.intersection(_frames(handled.__traceback__)[:1]):
        error.__context__ = handled.__context__


def _frames(trace: TracebackType | None) -> list[FrameType]:
    return [frame for frame, _ in traceback.walk_tb(trace)]


def _from_users(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without what runs the cell; the whole, where no frame is the user's."""
    first = trace
    while first is not None and not _is_users(first):
        first = first.tb_next
    return first or trace


def _is_users(trace: TracebackType) -> bool:
    file = trace.tb_frame.f_code.co_filename
    lies_beside_us = file.startswith(str(HOME)) and "site-packages" not in file  # notebooks and tests of ours
    return not _is_ours(trace) and (is_users(file) or lies_beside_us)


def _is_ours(trace: TracebackType) -> bool:
    name: str = trace.tb_frame.f_globals.get("__name__", "")
    return is_our_module(name) or name.startswith(_LEADING_TO_US)
