"""The threads on which the actors of a rank run: which of them works, and where it is."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from types import FrameType

from ...runtime.groups.waits import ACTOR_THREADS
from ...runtime.ranks.stacks import loops
from ...runtime.system.ours import is_ours
from .places import Stack, place_of, suspended, users_frame, users_index


def actor_at_work() -> threading.Thread | None:
    """The first that runs, or awaits, what the user wrote; None where all rest."""
    threads = [each for each in threading.enumerate() if each.name.startswith(ACTOR_THREADS)]
    return next((each for each in threads if users_frame(frame_of(each)) or suspended_in(each)), None)


def frame_of(thread: threading.Thread) -> FrameType | None:
    """Where a thread is; None when it has ended."""
    return sys._current_frames().get(thread.ident or 0)  # pyright: ignore[reportPrivateUsage] - documented all the same


def suspended_in(thread: threading.Thread) -> Stack:
    """Where a task of an async actor awaits, if its thread is one: the first in the user's code."""
    loop = loops.get(thread.ident or 0)
    for task in asyncio.all_tasks(loop) if loop is not None else ():
        found = [entry for entry in suspended(task.get_coro()) if not is_ours(entry[0].f_code.co_filename)]
        if any(users_frame(frame) is not None for frame, _ in found):
            return found
    return []


def place_at_work() -> str:
    """Where the first actor is that works: `cell 3 line 10 in step`; empty where all rest."""
    thread = actor_at_work()
    frame = users_frame(frame_of(thread)) if thread is not None else None
    if frame is None and thread is not None and (stack := suspended_in(thread)):
        frame = stack[users_index(stack)][0]
    return place_of(frame) if frame is not None else ""


def call_on_loop(thread: threading.Thread, call: Callable[[], object]) -> None:
    """Let the event loop of an async actor call this when it comes round."""
    loop = loops.get(thread.ident or 0)
    if loop is not None:
        loop.call_soon_threadsafe(call)
