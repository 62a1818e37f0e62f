"""Stacks that code on a rank prints begin with the user's code: we have called it, and thirty of our lines hide it.

`traceback.print_stack`, `logging` with `stack_info=True` and torch's anomaly mode walk the stack by one function of
`traceback`, and loguru by itself, above the line that has caught an error, where it prints the variables of ours, too.
Tracebacks of errors are left as they are, and so is faulthandler: an error of ours is shown with all our frames.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Sequence
from functools import wraps
from traceback import walk_stack
from types import FrameType
from typing import Any

from ..system.ours import is_ours
from .imports import when_imported
from .users import is_users

_Entry = tuple[FrameType, int]


def install() -> None:
    """From now on in this process; who has imported `walk_stack` before (our ledger) walks the whole stack."""
    if traceback.walk_stack is not _walk_from_users:  # to set it is to copy a page of who has forked us
        traceback.walk_stack = _walk_from_users
        when_imported("loguru", _cut_in_loguru)


@wraps(walk_stack)
def _walk_from_users(f: FrameType | None) -> Iterator[_Entry]:
    frame = sys._getframe(1) if f is None else f  # pyright: ignore[reportPrivateUsage] - documented all the same
    return iter(from_users(list(walk_stack(frame))))


def from_users(stack: list[_Entry]) -> list[_Entry]:
    """A stack, the innermost frame first, without us and what has called us; all, where it is not the user's.

    Example:
        >>> own = sys._getframe()
        >>> from_users([(own, 1)]) == [(own, 1)]
        True
    """
    files = [frame.f_code.co_filename for frame, _ in reversed(stack)]
    return stack[: len(stack) - _num_above(files)]


def _num_above(files: Sequence[str]) -> int:
    """How many of these, the outermost first, are above the user's code, if we are among them."""
    first = next((at for at, file in enumerate(files) if is_users(file)), 0)
    return first if any(map(is_ours, files[:first])) else 0


def _cut_in_loguru() -> None:
    """A private function of it gives the entries that are printed, the outermost first: file, line, function, text."""
    formatter: Any = getattr(sys.modules.get("loguru._better_exceptions"), "ExceptionFormatter", None)
    extract: Any = getattr(formatter, "_extract_frames", None)
    if extract is None:  # another version, which prints all
        return

    @wraps(extract)
    def extract_from_users(*args: Any, **how: Any) -> Any:
        entries, text = extract(*args, **how)
        return entries[_num_above([entry[0] for entry in entries]) :], text

    formatter._extract_frames = extract_from_users
