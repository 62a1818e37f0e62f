"""Where the threads of a rank are: sampled by its control thread while the main thread works, waits or hangs."""

from __future__ import annotations

import asyncio
import inspect
import linecache
import sys
import threading
import time
from collections.abc import Iterable
from itertools import dropwhile, takewhile
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

from ..groups import waits
from ..system.ours import HOME, is_ours

MAX_SPOTS = 100
"""Spots of a stack that travel; of more (a recursion without end) the outermost and the innermost half."""

_ENDS = 1000
"""Frames at either end of a stack that are looked at: a control thread that looked at a million would be deaf."""

_RUNNERS = {
    str(HOME / "runtime/ranks/mailbox.py"): {"_serve", "_call", "_spawn", "_finish"},
    str(HOME / "runtime/ranks/worker.py"): {"main"},
    str(HOME / "runtime/ranks/sync_driver.py"): {"_serve", "_run_users"},
    str(HOME / "runtime/ranks/async_driver.py"): {"_serve", "_run_users"},
}
"""The functions that call what users wrote: a stack is told from the innermost of them on."""
_LOOP = (str(HOME / "runtime/ranks/mailbox.py"), "run")
_BETWEEN = (str(HOME / "kernel/ranks/loop.py"), "go_on")
_ASYNCIO = str(Path(asyncio.__file__).parent)
_LOOPS = ("/selectors.py", "/nest_asyncio.py", "/contextlib.py")
_BOOTSTRAP = {"_bootstrap", "_bootstrap_inner", "run"}

loops: dict[int, asyncio.AbstractEventLoop] = {}
"""The event loops of actors by the thread that they are on: what awaits there is in no thread's stack."""


class Spot(NamedTuple):
    """One frame: its file, line, function, and the text of the line where it is known."""

    file: str
    line: int
    name: str
    source: str = ""


_DEBUGGERS = ("/debugpy/_vendored/", f"{HOME / 'kernel/debug'}/")
"""Parts of the paths of debuggers: debugpy's, also in threads of its own, and ours, which has pdb on top."""

Spots = tuple[Spot, ...]
"""A stack, the outermost frame first."""


class ThreadStack(NamedTuple):
    """Where a thread beside the main one is."""

    name: str
    spots: Spots


class StackSample(NamedTuple):
    """Where a rank is at one moment, without meshbook's own frames."""

    main: Spots = ()
    awaiting: Spots = ()
    """The coroutines that what the main thread runs awaits, from the outside in."""
    waiting: tuple[str, float] | None = None
    """The collective it waits in, and for how many seconds (see `waits`)."""
    others: tuple[ThreadStack, ...] = ()


def sample(main: int, awaited: object = None) -> StackSample:
    """Sample this process; of a rank that is a thread (the in-process engine), its main thread alone.

    `main` is the identity of the rank's main thread, `awaited` the coroutine that it runs. Takes no lock that user
    code could hold for long, and calls no user code.

    Example:
        >>> sample(threading.get_ident()).main[-1].name
        '<module>'
    """
    frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage] - documented all the same
    own, awaiting = visible(_spots_of(frames.get(main))), without_ours(_suspended(awaited))
    waiting = waits.current(main, is_at_work=bool(own or awaiting))
    others = [] if main != threading.main_thread().ident else _others(frames, main)
    return StackSample(
        main=bounded(own),
        awaiting=bounded(awaiting),
        waiting=None if waiting is None else (waiting.call, time.monotonic() - waiting.since),
        others=tuple(others),
    )


def visible(spots: Spots) -> Spots:
    """What a user wants to see of the stack of a main thread: from the endpoint on; nothing of an idle one."""
    runner = max((index for index, spot in enumerate(spots) if _is_runner(spot)), default=-1)
    inner = spots[runner + 1 :]
    if any((spot.file, _last(spot.name)) == _LOOP for spot in inner):  # it waits for a message
        inner = _leftovers(inner)
    return without_ours(_until_stopped(inner))


def _leftovers(spots: Spots) -> Spots:
    """What a task or a callback that cells have left does between them; nothing, if the loop waits."""
    start = max((index for index, spot in enumerate(spots) if (spot.file, _last(spot.name)) == _BETWEEN), default=None)
    return () if start is None else tuple(dropwhile(lambda spot: is_of_loop(spot.file), spots[start + 1 :]))


def is_of_loop(file: str) -> bool:
    """Is it a file of what runs tasks and callbacks?

    Example:
        >>> is_of_loop(asyncio.tasks.__file__), is_of_loop(__file__)
        (True, False)
    """
    return file.startswith(_ASYNCIO) or file.endswith(_LOOPS)


def without_ours(spots: Iterable[Spot]) -> Spots:
    """The frames that are not meshbook's own."""
    return tuple(spot for spot in spots if not is_ours(spot.file))


def bounded(spots: Spots) -> Spots:
    """At most `MAX_SPOTS` of them."""
    half = MAX_SPOTS // 2
    return spots if len(spots) <= MAX_SPOTS else spots[:half] + spots[-half:]


def _is_runner(spot: Spot) -> bool:
    return _last(spot.name) in _RUNNERS.get(spot.file, ())


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _others(frames: dict[int, FrameType], main: int) -> list[ThreadStack]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks: list[ThreadStack] = []
    for ident, frame in frames.items():
        name = names.get(ident, "")
        found = [_of_thread(name, _spots_of(frame))] if ident != main else []
        if found == [()] and ident in loops:
            found = [_of_thread(name, tuple(_suspended(task.get_coro()))) for task in asyncio.all_tasks(loops[ident])]
        stacks += [ThreadStack(name.removeprefix("meshbook-"), bounded(spots)) for spots in found if spots]
    return stacks


def _of_thread(name: str, spots: Spots) -> Spots:
    """Of actors' threads from the endpoint on, of ours nothing, of others all but how they were started."""
    if name.startswith("meshbook-"):
        return visible(spots) if any(map(_is_runner, spots)) else ()
    start = 0
    while start < len(spots) and spots[start].file == threading.__file__ and _last(spots[start].name) in _BOOTSTRAP:
        start += 1
    return without_ours(_until_stopped(spots[start:]))


def _until_stopped(spots: Spots) -> Iterable[Spot]:
    """Without what a stop has put on top."""
    return takewhile(lambda spot: not any(part in spot.file for part in _DEBUGGERS), spots)


def lines_of(frame: FrameType | None) -> list[tuple[CodeType, int]]:
    """The code and lines of a stack, the outermost first; of a recursion of thousands the two ends.

    Its thread goes on meanwhile, so nothing is looked at that may read files.
    """
    found: list[tuple[CodeType, int]] = []
    while frame is not None:
        found.append((frame.f_code, frame.f_lineno or 0))
        frame = frame.f_back
    del found[_ENDS:-_ENDS]
    return found[::-1]


def _spots_of(frame: FrameType | None) -> Spots:
    return tuple(_spot(code, line) for code, line in lines_of(frame))


def _spot(code: CodeType, line: int) -> Spot:
    return Spot(code.co_filename, line, code.co_qualname, linecache.getline(code.co_filename, line).strip())


def _suspended(awaited: object) -> list[Spot]:
    """Where a coroutine is suspended, with the coroutines that it awaits."""
    spots: list[Spot] = []
    while inspect.iscoroutine(awaited):
        if awaited.cr_frame is not None:
            spots.append(_spot(awaited.cr_code, awaited.cr_frame.f_lineno))
        awaited = awaited.cr_await
    return spots
