"""The lines of a program's text, as Python counts them."""

from __future__ import annotations

import re

_ENDS = re.compile(r"\r\n|\r|\n")


def code_lines(text: str) -> list[str]:
    r"""The lines of a program, without their ends.

    `str.splitlines` ends lines at form feeds, U+2028 and the like too, where Python's go on: texts that were pasted
    into strings have them.

    Example:
        >>> code_lines("x = 'one\u2028two'\r\ny = 1\n"), code_lines("")
        (["x = 'one\u2028two'", 'y = 1'], [])
    """
    *lines, last = _ENDS.split(text)
    return [*lines, last] if last else lines
