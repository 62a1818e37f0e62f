"""A stopped thread as a front-end shows it: frames, the variables of one, the lines around it. Runs no user code."""

from __future__ import annotations

import linecache
from collections.abc import Iterable
from types import FrameType
from typing import cast

import msgspec

from ...runtime.ranks.users import is_users
from ..sources.source import name_of
from .brief import safe_text
from .places import Stack, line_text, place_of
from .remains import is_function, locals_of

AROUND = 200
"""Lines that are shown above and below the current one."""

_MOST_LEVELS = 60
_MOST_VARIABLES = 200
_HIDDEN = frozenset({"In", "Out", "exit", "quit", "open", "get_ipython"})


class Level(msgspec.Struct, frozen=True, array_like=True):
    """One frame: where it is, and whether the user wrote it."""

    place: str
    source: str
    is_user: bool


class View(msgspec.Struct, frozen=True, array_like=True):
    """A stack with one frame chosen: `at` counts from the outermost of `levels`."""

    levels: tuple[Level, ...]
    at: int
    title: str
    """What the file of the chosen frame is called."""
    first: int
    """The number of the first of `lines`."""
    lines: tuple[str, ...]
    line: int
    variables: tuple[tuple[str, str], ...]
    """Of the chosen frame: name and value in brief."""


def view_of(stack: Stack, at: int) -> View:
    """What there is to show of a stack; of a very deep one the innermost part."""
    cut = max(0, min(at, len(stack) - _MOST_LEVELS))
    shown = stack[cut : cut + _MOST_LEVELS]
    at -= cut
    frame, line = shown[at]
    file = frame.f_code.co_filename
    text = linecache.getlines(file, frame.f_globals)
    first = max(line - AROUND, 1)
    return View(
        tuple(_level(*entry) for entry in shown),
        at,
        name_of(file) or file,
        first,
        tuple(each.rstrip("\n") for each in text[first - 1 : line + AROUND]),
        line,
        tuple(variables_of(frame)),
    )


def _level(frame: FrameType, line: int) -> Level:
    return Level(place_of(frame, line), line_text(frame, line), is_users(frame.f_code.co_filename))


def variables_of(frame: FrameType) -> Iterable[tuple[str, str]]:
    """Names and values in brief; of the lines of a cell what cells have assigned."""
    found = list(cast("dict[str, object]", frame.f_locals).items())
    if not is_function(frame.f_code):
        found = [(name, value) for name, value in found if not name.startswith("_") and name not in _HIDDEN]
    return [(name, safe_text(value)) for name, value in found[:_MOST_VARIABLES]]


def users_stack(frame: FrameType | None) -> Stack:
    """The frames of the user's code from here outwards, the outermost first."""
    stack: Stack = []
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            stack.append((frame, frame.f_lineno or 0))
        frame = frame.f_back
    return stack[::-1]


def users_of(stack: Stack) -> Stack:
    """Those of a stack that are the user's."""
    return [entry for entry in stack if is_users(entry[0].f_code.co_filename)]


def locals_text(stack: Stack, number: int) -> str:
    """The variables of a frame, counted from the innermost (1) outwards; empty without any frame."""
    if not stack:
        return ""
    frame, line = stack[-min(number, len(stack))]
    is_cells = not is_function(frame.f_code)
    lines = ["    (its variables are the names of the rank: `%mesh who`)"] if is_cells else locals_of(frame)
    return "\n".join([place_of(frame, line), *(lines or ["    (it has no variables)"])])
