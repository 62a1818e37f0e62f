"""What is told of a rank that ended: its last lines of stderr, and the stack it crashed with. Pure."""

from __future__ import annotations

import re
import signal

from ..engines.base import Exit
from ..system import crash
from ..system.ours import WINGS

TAIL = 400
"""Lines of stderr that are looked at: the stacks of a crash may be below a rank's own."""

MOST_LINES = 10

_END = re.compile(r"exited with code (?P<code>\d+)|killed by .*\(signal (?P<signum>\d+)\)")


def last_words(stderr: str) -> list[str]:
    """The last lines of a rank's stderr, indented; without the stacks of its crash.

    Example:
        >>> last_words("reading data\\nno such file\\n")
        ['  reading data', '  no such file']
    """
    return [f"  {line}" for line in crash.without(stderr).splitlines()[-MOST_LINES:]]


def end_of_actors(why: str) -> str:
    """What that end was to the actors which lived there, in the words that Monarch has for it; empty of no such end.

    Example:
        >>> end_of_actors("rank 3 exited with code 1 on host node7")
        'the process this actor was running on exited with non-zero code 1'
        >>> end_of_actors("rank 3 killed by SIGKILL (signal 9)"), end_of_actors("the mesh was stopped")
        ('the process this actor was running on failed: Killed(sig=9)', '')
    """
    end = _END.search(why.partition("\n")[0])
    if end is None:
        return ""
    if end["signum"]:
        return f"the process this actor was running on failed: Killed(sig={end['signum']})"
    kind = "" if end["code"] == "0" else "non-zero "
    return f"the process this actor was running on exited with {kind}code {end['code']}"


def story(rank_name: str, exit: Exit | None, host: str, stderr: str) -> str:
    """How and where a rank ended, in one line; then its last words, and the stack it crashed with.

    Example:
        >>> print(story("rank 3", Exit(code=1), "node7", "no such file\\n"))
        rank 3 exited with code 1 on host node7
          no such file
    """
    can_tell = exit is not None and exit.signum != signal.SIGKILL
    told = crash.read(stderr) if can_tell else None
    stack = [f"  at {place}" for place in crash.places_text(told.stack, WINGS)] if told is not None else []
    end = str(exit) if f"host {host} " in str(exit) else f"{exit} on host {host}"  # the loss of a host names it
    return "\n".join([f"{rank_name} {end}", *last_words(stderr), *stack])
