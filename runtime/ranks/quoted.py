"""An error of another process (a worker of a `DataLoader`, a pool, `mp.spawn`) or thread that is raised anew on a rank.

Libraries put the traceback of where it was raised into the message, or make it the cause. Of that are told the error
and the user's own lines; the whole text stands in the traceback. Pure.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_BEGIN = "Traceback (most recent call last):\n"
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)


class Quoted(NamedTuple):
    """What a traceback as Python prints it tells."""

    message: str
    """The error with its type, in one line or more."""
    places: list[tuple[str, int, str]]
    """File, line and function of each frame, from the outside in."""
    is_of_process: bool
    """Does the text before it speak of a process?"""


def quoted_in(text: str) -> Quoted | None:
    """What the last traceback in a text tells; None where there is none.

    Example:
        >>> caught = "Caught it in process 0.\\nTraceback (most recent call last):\\n"
        >>> quoted_in(caught + '  File "a.py", line 3, in f\\n    g(x)\\n    ^^^^\\nValueError: bad x\\n')
        Quoted(message='ValueError: bad x', places=[('a.py', 3, 'f')], is_of_process=True)
    """
    at = text.rfind(_BEGIN)
    told = text[at + len(_BEGIN) :].rstrip().removesuffix('"""').rstrip()  # in such quotes stands what pools tell
    lines = told.splitlines() if at >= 0 else []
    end = next((number for number, line in enumerate(lines) if not line.startswith("  ")), len(lines))
    if not 0 < end < len(lines):
        return None
    places = [(file, int(line), name) for file, line, name in _FRAME.findall("\n".join(lines[:end]))]
    return Quoted("\n".join(lines[end:]), places, "process" in text[:at].lower())


def is_remote(error: BaseException) -> bool:
    """Is it no error, but the traceback of one, as pools of processes give it?"""
    return type(error).__name__.lstrip("_") == "RemoteTraceback"


def said_by(told: Quoted, type_name: str) -> str:
    """The message of an error of this type that was raised for another, which it quotes.

    Example:
        >>> said_by(Quoted("ValueError: bad x\\nor y", [], True), "ValueError")
        'bad x, in another process\\nor y'
        >>> said_by(Quoted("ValueError: bad x", [], False), "RuntimeError")
        'ValueError: bad x'
    """
    head, newline, rest = told.message.partition("\n")
    kind, _, text = head.partition(": ")
    head = text if kind.rpartition(".")[2] == type_name else head
    where = ", in another process" if told.is_of_process else ""
    return f"{head}{where}".removeprefix(", ") + newline + rest
