"""What ranks print, as Monarch forwards it: `await procs.logging_option(stream_to_client=True)` in a program.

Each line says whose it is; with a window, lines that are alike are one line with their number.
"""

from __future__ import annotations

import contextlib
import logging
import platform
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, cast

from ..actor import Actor, endpoint
from ..config import get_global_config
from ..errors import SupervisionError
from ..system.own_streams import write
from .audiences import ECHO, is_echoed
from .roster import Roster

if TYPE_CHECKING:
    from ..mesh import ProcMesh
    from ..wire.tape import Stream

_ALIKE = 0.85
"""How much of two lines is the same, if they count as alike."""

_COMPARED = 256
"""So many characters of a line are compared, with so many lines before it: a flood must not stop the loop."""

_CYAN, _YELLOW, _PLAIN = "\x1b[36m", "\x1b[33m", "\x1b[0m"


async def set_up(procs: ProcMesh, is_streamed: bool, window: float | None, level: int) -> None:
    """What `ProcMesh.logging_option` does, once all its processes are up."""
    levels = procs.spawn("logging", LogLevel)
    with contextlib.suppress(SupervisionError):  # ranks that are gone log nothing
        await levels.set.call(level)
    await levels.stop()
    roster = cast("object", procs.roster)
    if not (isinstance(roster, Roster) and is_echoed()):
        return  # a notebook listens, or this is a rank, whose meshes are its controller's to hear
    if is_streamed and not get_global_config()["enable_log_forwarding"]:
        warnings.warn(
            "logging_option(stream_to_client=True) has no effect: log forwarding is disabled. Call "
            "configure(enable_log_forwarding=True) before creating the ProcMesh",
            stacklevel=3,
        )
        return
    ECHO.forward(roster, Forwarding(roster.name, window, write) if is_streamed else None)


class LogLevel(Actor):
    """Sets the level below which a process drops log records."""

    @endpoint
    def set(self, level: int) -> None:
        logging.getLogger().setLevel(level)


@dataclass(slots=True)
class Alike:
    """Lines that are alike: the first of them, with its rank, and how many there are.

    Example:
        >>> lines = Alike.of([(2, "step 10 done"), (0, "step 10 done"), (1, "step 11 done"), (1, "bye")])
        >>> [str(each) for each in lines]
        ['[3 similar log lines] [2] step 10 done', '[1 similar log lines] [1] bye']
    """

    rank: int
    line: str
    count: int = 1

    @staticmethod
    def of(said: list[tuple[int, str]]) -> list[Alike]:
        """The groups, in the order in which they came."""
        groups: list[Alike] = []
        by_line: dict[str, Alike] = {}
        for rank, line in said:
            group = by_line.get(line) or next((each for each in groups[-_COMPARED:] if each.is_like(line)), None)
            if group is None:
                groups.append(group := Alike(rank, line))
            else:
                group.count += 1
            by_line[line] = group
        return groups

    def is_like(self, line: str) -> bool:
        matcher = SequenceMatcher(None, self.line[:_COMPARED], line[:_COMPARED], autojunk=False)
        return all(ratio() > _ALIKE for ratio in (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio))

    def __str__(self) -> str:
        return f"[{self.count} similar log lines] [{self.rank}] {self.line}"


@dataclass(eq=False)
class Forwarding:
    """The lines of one mesh on their way to the program's streams."""

    name: str
    """Of the processes."""
    window: float | None
    """Seconds for which lines are kept to be told together; None: each comes at once."""
    put_out: Callable[[Stream, str], None]
    _kept: dict[Stream, list[tuple[int, str]]] = field(default_factory=dict["Stream", "list[tuple[int, str]]"])
    _since: float = field(default_factory=time.time)
    _lock: threading.Lock = field(default_factory=threading.Lock)  # lines come on the loop, and any thread may flush

    def take(self, rank: int, stream: Stream, text: str) -> None:
        """Whole lines that a rank has said."""
        lines = text.splitlines()
        if self.window is None:
            of = f"[{platform.node()} {self.name}-{rank}] [{rank}]"
            self.put_out(stream, "".join(f"{of} {line}\n" for line in lines))
            return
        with self._lock:
            self._kept.setdefault(stream, []).extend((rank, line) for line in lines)

    def flush(self) -> None:
        """The window is over: tell what was said in it."""
        with self._lock:
            kept, self._kept = self._kept, {}
            since, self._since = self._since, time.time()
        for stream, said in kept.items():
            groups = [str(each).replace("]", f"]{_PLAIN}", 1) for each in Alike.of(said)]
            head, foot = (f"Aggregated Logs ({_clock(when)})" for when in (since, self._since))
            lines = [f"{_CYAN}>>> {head} >>>{_PLAIN}", *(f"{_YELLOW}{each}" for each in groups)]
            self.put_out(stream, "\n".join([*lines, f"{_CYAN}<<< {foot} <<<{_PLAIN}", "", ""]))


def _clock(when: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
