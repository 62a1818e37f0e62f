"""What ranks said, read as a reader does: equal lines are one, unless one of them came later."""

from __future__ import annotations

import re


def who_said(output: str, text: str) -> set[int]:
    """The ranks that said this at the beginning of a line, in one line or, on a busy machine, in several.

    Example:
        >>> who_said("0,2-3 │ ready\\n  1 │ ready\\n", "ready")
        {0, 1, 2, 3}
    """
    lines = re.findall(rf"^ *([\d,-]+) │ {re.escape(text)}", output, re.MULTILINE)
    return {rank for line in lines for rank in ranks_in(line)}


def ranks_in(text: str) -> list[int]:
    """The ranks of a gutter.

    Example:
        >>> ranks_in("  0,2-3 ")
        [0, 2, 3]
    """
    parts = [part.split("-") for part in text.split(",")]
    return [rank for ends in parts for rank in range(int(ends[0]), int(ends[-1]) + 1)]
