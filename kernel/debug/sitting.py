"""Serving who is stopped while a cell runs, or where a cell asks for it: with a user, or without one."""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...runtime.ranges import ranks_text
from ...runtime.ranks.place import coordinates
from ..waiting.waited import Tell
from .asking import Asker
from .converse import Conversation, pass_over

if TYPE_CHECKING:
    from .stoppable import Stoppable


def serve(
    mesh: Stoppable,
    user: Asker | None,
    is_over: Callable[[], bool],
    tell: Tell,
    *,
    abort: Callable[[], object] | None = None,
    catch_up: Callable[[], object] = lambda: None,
    stays: bool = False,
    tell_lost: Callable[[], object] = lambda: None,
) -> None:
    """Let the user talk with all that are stopped; where there is none, let them go on, and say so by `tell`.

    `abort` interrupts what has brought them here, by default the cell that runs on the ranks; `catch_up` shows what
    they have printed until now, and `tell_lost`, on another thread, who of them fails or dies as a line is awaited;
    `stays` waits for who works on a line or steps, however long that takes. Where a console serves them, this only
    waits a moment. Raises `KeyboardInterrupt` for the stop button.
    """
    if mesh.desk.has_console:
        mesh.desk.wait(lambda: is_over() or not mesh.desk.has_console)
        return
    if user is None:
        pass_over(mesh.desk, tell)
        return
    with mesh.desk.serving(), _interruptible():
        conversation_of(mesh, user, is_over, abort, catch_up, stays, tell_lost).hold()


def conversation_of(
    mesh: Stoppable,
    user: Asker,
    is_over: Callable[[], bool],
    abort: Callable[[], object] | None = None,
    catch_up: Callable[[], object] = lambda: None,
    stays: bool = False,
    tell_lost: Callable[[], object] = lambda: None,
) -> Conversation:
    """A conversation of this user with the ranks of a mesh; see `serve`."""
    abort = abort or mesh.interrupt
    select, name_of = selecting_in(mesh), names_of(mesh)
    return Conversation(mesh.desk, user, select, name_of, is_over, abort, catch_up, stays, tell_lost)


def announce(mesh: Stoppable, user: Asker | None, tell: Tell) -> None:
    """Say who is stopped in a cell that nobody waits for, and how to get there; without a user, let them go on."""
    if user is None:
        pass_over(mesh.desk, tell)
        return
    stopped: dict[tuple[bool, str], list[int]] = {}
    for stop in mesh.desk.new_stops():
        stopped.setdefault((stop.kind in ("input", "password"), stop.place), []).append(stop.rank)
    for (asks, place), ranks in stopped.items():
        one, many = ("asks", "ask") if asks else ("is", "are")
        what = f"{many if ranks[1:] else one} {'for input' if asks else 'stopped in the debugger'}"
        tell(sorted(ranks), "◌", f"{what}{place and f' at {place}'}: `%mesh debug` answers it")


_select: Callable[[Stoppable, str], Sequence[int]] | None = None


def select_with(select: Callable[[Stoppable, str], Sequence[int]] | None) -> None:
    """How selectors are read at the prompt: as in the notebook's magics, which stand above."""
    global _select
    _select = select


def selecting_in(mesh: Stoppable) -> Callable[[str], Sequence[int]]:
    """Reads selectors of this mesh."""

    def plain(text: str) -> Sequence[int]:
        if not text.isdigit() or int(text) >= mesh.num_ranks:
            raise ValueError(f"{text!r} is no rank of {ranks_text(range(mesh.num_ranks))}")
        return (int(text),)

    return plain if _select is None else functools.partial(_select, mesh)


def names_of(mesh: Stoppable) -> Callable[[int], str]:
    """What a rank is called: `rank 3 (dp=1,tp=1)`."""

    def name_of(rank: int) -> str:
        coord = coordinates(rank, mesh.axes)
        place = ",".join(f"{axis}={i}" for axis, i in coord.items())
        return f"rank {rank} ({place})" if place else f"rank {rank}"

    return name_of


@contextmanager
def _interruptible() -> Generator[None]:
    """Ctrl-C ends the question, whoever has taken the signal to stop the cell by it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
