"""Where a frame is, for the reader."""

from __future__ import annotations

import inspect
import linecache
from pathlib import Path
from types import FrameType

from ...runtime.ranks.users import is_users
from ...runtime.system.ours import is_ours
from ..sources.source import name_of

_PACKAGE = f"{__name__.partition('.')[0]}."

Stack = list[tuple[FrameType, int]]
"""Frames with the lines they are at, the outermost first."""


def suspended(awaited: object) -> Stack:
    """Where a coroutine is suspended, with the coroutines that it awaits."""
    frames: Stack = []
    while inspect.iscoroutine(awaited):
        if awaited.cr_frame is not None:
            frames.append((awaited.cr_frame, awaited.cr_frame.f_lineno))
        awaited = awaited.cr_await
    return frames


def users_index(stack: Stack) -> int:
    """The innermost frame of the user's among these; the innermost of all, where none is."""
    own = (i for i in reversed(range(len(stack))) if is_users(stack[i][0].f_code.co_filename))
    return next(own, len(stack) - 1)


def users_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's code; None where it was not called by any."""
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def is_for_users(frame: FrameType) -> bool:
    """Does it run for code of the user's, and not for ours, which may itself have been called by the user's?"""
    each: FrameType | None = frame
    while each is not None and not _is_of_ours(each):
        if is_users(each.f_code.co_filename):
            return True
        each = each.f_back
    return False


def _is_of_ours(frame: FrameType) -> bool:
    """Is it of meshbook, also where that is made from a text, as `__init__` of a dataclass is?"""
    return is_ours(frame.f_code.co_filename) or str(frame.f_globals.get("__name__")).startswith(_PACKAGE)


def line_text(frame: FrameType, line: int) -> str:
    """The text of a line of a frame's code; empty where it is not known."""
    return linecache.getline(frame.f_code.co_filename, line, frame.f_globals).strip()


def place_of(frame: FrameType, line: int | None = None) -> str:
    """Where a frame is, by the innermost line of the user's: `cell 5 line 2 in forward`. With a `line`, just that."""
    each = users_frame(frame) or frame if line is None else frame
    file = each.f_code.co_filename
    function = each.f_code.co_name
    within = "" if function == "<module>" else f" in {function}"
    return f"{name_of(file) or Path(file).name} line {line or each.f_lineno}{within}"
