"""What is printed stands before the display that follows it; where nothing was printed, nobody is waited for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, cast


def flush_what_waits(publisher: Any) -> Callable[[], None]:
    """Let a publisher of ipykernel flush the streams that hold something; returns how that is taken back.

    It would ask the thread that sends for each stream and wait for it, a fifth of what a small cell costs. Other
    publishers stay as they are.
    """
    if not hasattr(publisher, "_flush_streams"):
        return lambda: None
    own = cast("dict[str, object]", vars(publisher))
    own["_flush_streams"] = _flush_streams

    def undo() -> None:
        own.pop("_flush_streams", None)

    return undo


def _flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        # Of a stream of ipykernel: False from when its thread begins to send, and the display is sent by it afterwards.
        if getattr(stream, "_flush_pending", True):
            stream.flush()
