"""The quiet column that says who said it: the ranks of a line, in little room. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ..runtime.ranges import ranks_text

_MOST: Final = 32
"""Characters of ranks in front of a line, which moves to the right by them."""


def gutter(ranks: Collection[int]) -> str:
    """Ranks as a line has them in front; of many that lie apart the first, and how many there are.

    Example:
        >>> gutter([0, 1, 2, 7]), gutter([7 * n * n % 64 for n in range(64)])
        ('0-2,7', '0,7,15,23,28,31,39,… (12 ranks)')
    """
    text = ranks_text(ranks)
    if len(text) <= _MOST:
        return text
    end = f",… ({len(set(ranks)):,} ranks)"
    return text[: _MOST - len(end) + 1].rpartition(",")[0] + end
