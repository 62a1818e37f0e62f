"""An event of a widget on its way: a call to the rank that has the widget, heard by the run that made it."""

from __future__ import annotations

from ..runtime.wire.lane import Frames
from ..runtime.wire.messages import Answer, Note, Reply
from .run import Run

MOST = 64
"""Events of one run whose late output is shown: dragging a slider makes hundreds."""


class Event:
    """The caller of one event."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def on_reply(self, rank: int, reply: Reply | Answer, frames: Frames) -> None:
        """Nothing comes back: what a callback raises is logged on its rank."""

    def on_note(self, rank: int, note: Note, frames: Frames) -> None:
        self._run.on_note(rank, note, frames)

    def on_lost(self, rank: int, why: str) -> None:
        """The widget is closed then."""
