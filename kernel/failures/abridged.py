"""Long messages of errors, by what they begin and end with: the end tells what to do about it, and its causes. Pure."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

_MOST: Final = 2_000
"""Characters, more or less: a line stays whole."""
_MOST_LINES: Final = 24
_LONGEST: Final = 1_000
"""Characters of one line."""


def abridged(message: str) -> str:
    """A message, or the lines that it begins and ends with.

    Example:
        >>> abridged("\\n".join(f"size mismatch for {number}.weight" for number in range(80))).splitlines()[17:20]
        ['size mismatch for 17.weight', '… 56 more lines …', 'size mismatch for 74.weight']
    """
    lines = [_both_ends(line) for line in message.split("\n")]
    head = _num_fitting(lines, _MOST_LINES * 3 // 4, _MOST * 3 // 4)
    tail = _num_fitting(lines[head:][::-1], _MOST_LINES // 4, _MOST // 4)
    left_out = len(lines) - head - tail
    more = [f"… {left_out:,} more line{'s' * (left_out > 1)} …"] * (left_out > 0)
    return "\n".join([*lines[:head], *more, *lines[len(lines) - tail :]])


def _num_fitting(lines: Sequence[str], most: int, room: int) -> int:
    """How many of the first lines there is room for, in lines and in characters; one in any case, if there are any."""
    sizes = list(accumulate(len(line) + 1 for line in lines[:most]))
    return max(bisect(sizes, room), min(len(sizes), 1))


def _both_ends(line: str) -> str:
    if len(line) <= _LONGEST:
        return line
    half = _LONGEST // 2
    return f"{line[:half]} … {len(line) - 2 * half:,} more characters … {line[-half:]}"
