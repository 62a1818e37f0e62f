"""Answers of any ranks to one call, by rank: for lists of ranks that form no rectangle, such as those still alive."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from ..errors import SupervisionError
from ..ranks.failure import RemoteFailure, rebuild
from ..wire import codec
from ..wire.lane import Frames
from ..wire.messages import Answer, Note, Reply
from .roster import Roster


class Gather:
    """Waits for ranks; what each answered stands in `answers`, what it failed with in `errors`."""

    def __init__(self, roster: Roster, ranks: Sequence[int], title: str) -> None:
        self.answers: dict[int, Any] = {}
        self.errors: dict[int, BaseException] = {}
        self.call = 0
        """The number of the call, where whoever made it has noted it."""
        self._roster = roster
        self._title = title
        self._left = set(ranks)
        self._all_there = threading.Event()
        if not self._left:
            self._all_there.set()  # nobody waits yet

    @property
    def is_done(self) -> bool:
        """Have all answered, failed or died?"""
        return self._all_there.is_set()

    @property
    def owing(self) -> list[int]:
        """The ranks that have not answered yet."""
        return sorted(self._left)

    def wait(self, timeout: float | None = None) -> bool:
        """Until all have answered, failed or died, or `timeout` seconds are over; whether all have."""
        return self._roster.reactor.wait(self._all_there, timeout)

    def check(self) -> None:
        """Raises the first error of a rank that lives: who died meanwhile is told of elsewhere."""
        for rank in sorted(self.errors):
            if self._roster.states[rank].exit is None:
                raise self.errors[rank]

    def on_reply(self, rank: int, reply: Reply | Answer, frames: Frames) -> None:
        where = f"{self._title} on {self._roster.name_of(rank)}"
        try:
            answer = codec.decode(frames[0], frames[1:])
        except codec.DecodeError as error:
            self.errors[rank] = error
        else:
            if isinstance(answer, RemoteFailure) and not reply.ok:
                self.errors[rank] = rebuild(answer, where)
            else:
                self.answers[rank] = answer
        self._settle(rank)

    def on_note(self, rank: int, note: Note, frames: Frames) -> None: ...

    def on_lost(self, rank: int, why: str) -> None:
        self.errors[rank] = SupervisionError(f"{self._title}: {why}")
        self._settle(rank)

    def _settle(self, rank: int) -> None:
        self._left.discard(rank)
        if not self._left:
            self._roster.reactor.announce(self._all_there)
