"""Failures that nobody was waiting for: from the actor that failed to its owner, and on up to the client.

A failure of a mesh goes to `__supervise__` of the actor that made it; truthy means dealt with. Else the owner has
failed too, and its own owner hears of it. What reaches the client goes to `unhandled_fault_hook`.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from .cells import readable
from .controller.last_words import end_of_actors
from .ranges import named
from .system.ending import leave

_PLACE = re.compile(r" +cell \d+, line \d+")
"""A frame of a notebook's cell in a traceback, as `readable` has it."""

_GONE = " and is gone: "


class MeshFailure:
    """What an owner is told: which mesh, which ranks, and why."""

    def __init__(self, mesh_name: str, ranks: list[int], report: str) -> None:
        self.mesh_name = mesh_name
        self.mesh = None  # Monarch's has it; here nobody asks for more than the name
        self.ranks = ranks
        self._report = report

    def report(self) -> str:
        """The account, with the remote traceback where there is one."""
        return self._report

    @property
    def cause(self) -> str:
        """Of what it has failed, in a line, and where where that is known."""
        lines = readable(self._report).splitlines()
        place = [line.strip() for line in lines if _PLACE.match(line)][-1:]
        what = lines[1] if lines[0].endswith(":") and lines[1:] else lines[0]
        _, gone, why = what.partition(_GONE)
        return " · ".join([f"its process is gone: {why}" if gone else what.strip(), *place])

    def is_in(self, text: str) -> bool:
        """Whether a text tells of it: of the end of the same process, or the same error of this mesh.

        Example:
            >>> failure = MeshFailure("w", [1], report_of_death("w", "rank 1 (pid 7) exited with code 3"))
            >>> failure.is_in("Endpoint call v.f() failed, rank 1 (pid 7) exited with code 3 on host h")
            True
            >>> MeshFailure("w", [0], "The actor w has failed:\\nValueError: no").is_in("v.f(): ValueError: no")
            False
        """
        _, gone, what = self.cause.partition(" · ")[0].rpartition("its process is gone: ")
        return what in text and bool(gone or self.mesh_name in text)

    def __str__(self) -> str:
        return self._told(self._report)

    def __repr__(self) -> str:
        lines = self._report.splitlines()
        # What has failed ends with a colon, and the line after it says of what.
        return self._told(" ".join(lines[: 2 if lines[0].endswith(":") else 1]))

    def _told(self, event: str) -> str:
        return f"MeshFailure(mesh_name={self.mesh_name}, crashed_ranks={self.ranks}, event=Supervision event: {event})"

    def __reduce__(self) -> Any:
        raise TypeError("a MeshFailure cannot be pickled: send its report()")


def report_of_death(mesh_name: str, why: str) -> str:
    """The report to who owns actors whose process has ended.

    Example:
        >>> print(report_of_death("workers", "rank 1 exited with code 3"))
        The actor workers and all its descendants have failed:
          the process this actor was running on exited with non-zero code 3 and is gone: rank 1 exited with code 3
    """
    end = end_of_actors(why) or "the process this actor was running on ended"
    return f"The actor {mesh_name} and all its descendants have failed:\n  {end}{_GONE}{why}"


def default_fault_hook(failure: MeshFailure) -> None:
    """Say it on stderr and end the program: exit code 1, after its `finally` blocks and atexit handlers.

    In a notebook or another interactive session nothing is ended.
    """
    tell(failure)
    if not _is_interactive():
        if _is_first.acquire(blocking=False):  # ranks fail together, and the program ends once
            print(_ENDS, end="", file=sys.stderr, flush=True)
        sys.exit(1)


def tell(failure: MeshFailure) -> None:
    """Say it on stderr. In an interactive session a line is enough: the next call says it all."""
    if _is_interactive():
        _tell_soon(failure)
        return
    # In one piece, as several ranks may fail at once, and each is told on a thread of its own.
    print(f"meshbook: unhandled fault: {readable(failure.report())}\n", end="", file=sys.stderr, flush=True)


_ENDS = """meshbook: the program ends, as nobody has dealt with this. It goes on where __supervise__ of the owner \
returns True, or meshbook.runtime.unhandled_fault_hook is a function of yours.
"""
_is_first = threading.Lock()

_MOMENT = 0.2
"""Seconds within which failures are one: those of all ranks of a mesh, say, on which a constructor raises; and within
which a cell that waits for a call shows the error that tells of them."""

_ENDS_KEPT = 1024
"""So many ends of processes are known to be told; a mesh may lose all its ranks at once."""

_pending: list[MeshFailure] = []
_told: deque[str] = deque(maxlen=_ENDS_KEPT)
_telling = threading.Lock()  # each failure comes on a thread of its own


def _tell_soon(failure: MeshFailure) -> None:
    with _telling:
        _pending.append(failure)
        is_first = len(_pending) == 1
    if is_first:
        time.sleep(_MOMENT)
        with _telling:
            failures = [failure for failure in _pending if not any(map(failure.is_in, _told))]
            _pending.clear()
        print("".join(f"{line}\n" for line in fault_lines(failures)), end="", file=sys.stderr, flush=True)


def end_told(why: str) -> None:
    """How a process has ended, with its pid: who waits for it is told so, and needs no line for each actor there."""
    _told.append(why)


def shown(error: BaseException) -> None:
    """An interactive user reads this error now: no line repeats what it tells already."""
    if not _pending:
        return
    told = "\n".join(map(str, [error, *getattr(error, "by_rank", {}).values()]))
    with _telling:
        _pending[:] = [failure for failure in _pending if not failure.is_in(told)]


def fault_lines(failures: Iterable[MeshFailure]) -> list[str]:
    """A line for each mesh and what has become of it, with the ranks.

    Example:
        >>> report = "The actor w has failed:\\nValueError: no"
        >>> fault_lines([MeshFailure("w", [rank], report) for rank in (2, 1, 0)])
        ['meshbook: unhandled fault: w on ranks 0-2: ValueError: no']
    """
    ranks: dict[tuple[str, str], list[int]] = {}
    for failure in failures:
        ranks.setdefault((failure.mesh_name, failure.cause), []).extend(failure.ranks)
    return [f"meshbook: unhandled fault: {name} on {named(which)}: {cause}" for (name, cause), which in ranks.items()]


def raise_unhandled(hook: Any, failure: MeshFailure) -> None:
    """Call the hook; a `SystemExit` from it ends the program, though this is not its main thread."""
    try:
        hook(failure)
    except SystemExit as leaving:
        leave(leaving.code if isinstance(leaving.code, int) else 1)
    except Exception as error:  # noqa: BLE001 - the rim: a hook that raises is told, and is not called again for it
        print(f"meshbook: the unhandled_fault_hook raised {error!r} for {failure!r}", file=sys.stderr, flush=True)


def _is_interactive() -> bool:
    ipython = sys.modules.get("IPython")
    return hasattr(sys, "ps1") or (ipython is not None and ipython.get_ipython() is not None)
