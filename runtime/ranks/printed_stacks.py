"""Stacks that code on a rank prints begin with the user's code: we have called it, and thirty of our lines hide it.

`traceback.print_stack`, `logging` with `stack_info=True` and torch's anomaly mode walk the stack by one function of
`traceback`. Tracebacks of errors do not, nor does faulthandler: an error of ours is shown with all our frames.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from functools import wraps
from traceback import walk_stack
from types import FrameType

from ..ours import is_ours
from .users import is_users

_Entry = tuple[FrameType, int]


def install() -> None:
    """From now on in this process; who has imported `walk_stack` before (our ledger) walks the whole stack."""
    if traceback.walk_stack is not _walk_from_users:  # to set it is to copy a page of who has forked us
        traceback.walk_stack = _walk_from_users


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
    files = [frame.f_code.co_filename for frame, _ in stack]
    outermost = max((at for at, file in enumerate(files) if is_users(file)), default=len(files))
    return stack[: outermost + 1] if any(map(is_ours, files[outermost + 1 :])) else stack
