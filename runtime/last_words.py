"""What is told of a rank that ended: its last lines of stderr, and the stack it crashed with. Pure."""

from __future__ import annotations

import signal

from . import crash
from .engines.base import Exit

TAIL = 400
"""Lines of stderr that are looked at: the stacks of a crash may be below a rank's own."""

MOST_LINES = 10


def last_words(stderr: str) -> list[str]:
    """The last lines of a rank's stderr, indented; without the stacks of its crash.

    Example:
        >>> last_words("reading data\\nno such file\\n")
        ['  reading data', '  no such file']
    """
    return [f"  {line}" for line in crash.without(stderr).splitlines()[-MOST_LINES:]]


def story(rank_name: str, exit: Exit | None, host: str, stderr: str) -> str:
    """How and where a rank ended, in one line; then its last words, and the stack it crashed with.

    Example:
        >>> print(story("rank 3", Exit(code=1), "node7", "no such file\\n"))
        rank 3 exited with code 1 on host node7
          no such file
    """
    can_tell = exit is not None and exit.signum != signal.SIGKILL
    told = crash.read(stderr) if can_tell else None
    stack = [f"  at {place}" for place in crash.places_text(told.stack, crash.OURS)] if told is not None else []
    end = str(exit) if f"host {host} " in str(exit) else f"{exit} on host {host}"  # the loss of a host names it
    return "\n".join([f"{rank_name} {end}", *last_words(stderr), *stack])
