"""Ranks of a script that stop in the debugger: who is asked what they are to do, where there is no notebook.

Where the script has a terminal, its user is, as soon as its main thread waits for an answer. Else ranks go on with a
warning, or wait for `python -m meshbook.debug attach` if `MESHBOOK_BREAKPOINTS=wait` says so.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cache

from ..kernel.debug.asking import Asker, asker, is_attended
from ..kernel.debug.bare import BareMesh, bare_meshes
from ..kernel.debug.converse import pass_over
from ..kernel.debug.desk import SOON
from ..kernel.debug.sitting import serve
from ..kernel.waiting.hangs import FIRST
from ..runtime.ranges import ranks_text
from .asker import NotebookAsker
from .hanging_calls import HangingCalls

SETTING = "MESHBOOK_BREAKPOINTS"


def tell(ranks: Sequence[int], mark: str, line: str) -> None:
    """Say something about ranks."""
    print(f"{ranks_text(ranks)} {mark} {line}", file=sys.stderr)


_hanging = HangingCalls(tell)

_telling = threading.Lock()  # several ranks stop at once: one after the other is told of


def watch(mesh: BareMesh) -> None:
    """Do what is to be done when ranks of this mesh stop."""
    mesh.desk.listeners.append(lambda: _on_stop(mesh))


def look() -> None:
    """Let the user of the script's own terminal talk with who is stopped; on its main thread, while that waits."""
    if not is_attended():
        serve_stopped()


def serve_stopped() -> None:
    """The same wherever somebody sits."""
    for mesh in bare_meshes():
        if mesh.desk.stops.waiting and not mesh.desk.is_served and (user := _user()) is not None:
            serve(mesh, user, lambda: False, tell)


def look_at_calls() -> None:
    """Say what calls of a script that have taken seconds hang in; on a thread that may wait for ranks."""
    if not is_attended():  # the cell that waits for them says so
        _hanging.look(FIRST)


def _user() -> Asker | None:
    if is_attended():
        return asker()
    if not _is_at_terminal():
        return None
    import readline  # only where somebody types: editing and history of `input`

    assert readline
    return NotebookAsker(None)


def _is_at_terminal() -> bool:
    """Can this process read what is typed? In the background (`python train.py &`) it would be stopped for trying."""
    return sys.stdin is not None and sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()


def _on_stop(mesh: BareMesh) -> None:
    """On the loop's thread, which must not wait for what is asked of ranks."""
    if mesh.desk.stops.waiting and not mesh.desk.is_served:
        threading.Thread(target=_tell, args=(mesh,), name="meshbook-told", daemon=True).start()


def _tell(mesh: BareMesh) -> None:
    with _telling, suppress(RuntimeError):  # the loop is closed: the script has ended meanwhile
        is_waited_for = _user() is not None or os.environ.get(SETTING) == "wait"
        if is_waited_for and mesh.desk.wait(lambda: mesh.desk.is_served or not mesh.desk.stops.waiting, SOON):
            return
        if is_waited_for:
            _announce(mesh)
        elif mesh.desk.stops.waiting and not mesh.desk.is_served:
            pass_over(mesh.desk, tell, "nobody is attached")
            _hint()


@cache
def _hint() -> None:
    """Once a process."""
    print(f"  {SETTING}=wait lets ranks wait for `{command()}`", file=sys.stderr)


def _announce(mesh: BareMesh) -> None:
    for stop in mesh.desk.new_stops():
        what = "asks for input" if stop.kind in ("input", "password") else "is stopped in the debugger"
        at = f" at {stop.place}" if stop.place else ""
        tell([stop.rank], "◌", f"{what}{at}: `{command()}` in another terminal answers it")


def command() -> str:
    """What is typed in another terminal to get at this process."""
    return f"python -m meshbook.debug attach {os.getpid()}"
