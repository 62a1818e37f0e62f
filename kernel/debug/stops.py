"""Who is stopped in the debugger, and whom the next line goes to. Pure: events and choices in, state out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from .events import Event, Stop, Went

Key = tuple[int, int]
"""A conversation: a rank, and its number there."""


def key_of(event: Event) -> Key:
    return event.rank, event.talk


@dataclass(slots=True)
class Stops:
    """The threads of ranks that wait for a line.

    One of them has the focus: it is asked for, the others are held. When it goes on, it keeps the focus as long as it
    may stop again at once (after a step); then the next one gets it.

    Example:
        >>> stops = Stops()
        >>> for rank in (2, 0):
        ...     stops.take(Stop(rank, 1, 1, "live", "ipdb> "))
        >>> stops.focused().rank, stops.ranks
        (2, (0, 2))
        >>> stops.answered(stops.focused())
        >>> stops.focused() is None, stops.next().rank
        (True, 0)
    """

    waiting: Mapping[Key, Stop] = field(default_factory=dict[Key, Stop])
    """Never changed, but replaced: events come on the loop's thread, and who reads on another holds no lock."""
    focus: Key | None = None
    left: Mapping[Key, int] = field(default_factory=dict[Key, int])
    """Conversations that have been left and are about to end: up to which question, which may not have come yet."""
    working: frozenset[Key] = frozenset()
    """Who works on a line, or steps: it is about to ask again. Never changed, but replaced."""

    def take(self, event: Event) -> None:
        """Something has come from a rank."""
        key = key_of(event)
        if isinstance(event, Went):
            self._forget([key])
            self.left = {other: turn for other, turn in self.left.items() if other != key}
            if not event.steps:
                self.working -= {key}
            return
        self.working -= {key}
        if event.turn <= self.left.get(key, 0):
            return
        known = self.waiting.get(key)
        if known is None or known.turn < event.turn:
            self.waiting = {**self.waiting, key: event}
        if self.focus is None:
            self.focus = key

    def focused(self) -> Stop | None:
        """Who is asked for now; None while the one with the focus is on its way."""
        return self.waiting.get(self.focus) if self.focus is not None else None

    def next(self) -> Stop | None:
        """Who is asked for, after the focus has moved on where it must; None where nobody waits."""
        waiting, stop = self.waiting, self.focused()
        if stop is None and waiting:
            self.focus = min(waiting)
            stop = waiting[self.focus]
        return stop

    def answered(self, stop: Stop) -> None:
        """A line was sent to this one: it waits no more."""
        if self.waiting.get(key_of(stop)) == stop:
            self._forget([key_of(stop)])
            self.working |= {key_of(stop)}

    def leave(self, questions: Mapping[Key, int]) -> None:
        """These have been answered on their ranks, and their conversations end: nobody is to be asked any more."""
        self.left = {**self.left, **questions}
        for key, turn in questions.items():
            if (stop := self.waiting.get(key)) is not None and stop.turn <= turn:
                self.answered(stop)

    def mute(self, stop: Stop) -> None:
        """It has been heard: it waits on, with nothing to say."""
        if self.waiting.get(key_of(stop)) == stop:
            self.waiting = {**self.waiting, key_of(stop): msgspec.structs.replace(stop, out="")}

    def choose(self, rank: int) -> Stop | None:
        """Give a rank the focus, or, if it has it, the next thread there; None where it is not stopped."""
        keys = [key for key in sorted(self.waiting) if key[0] == rank]
        if not keys:
            return None
        self.focus = next((key for key in keys if self.focus is not None and key > self.focus), keys[0])
        return self.waiting[self.focus]

    def drop(self, ranks: Collection[int]) -> list[Stop]:
        """These ranks are gone; who of them was stopped."""
        gone = [stop for key, stop in self.waiting.items() if key[0] in ranks]
        self._forget([key_of(stop) for stop in gone])
        self.working = frozenset(key for key in self.working if key[0] not in ranks)
        if self.focus is not None and self.focus[0] in ranks:
            self.focus = None
        return gone

    def renew(self, rank: int) -> None:
        """It is another process, or none: nothing that was left there ends any more."""
        self.left = {key: turn for key, turn in self.left.items() if key[0] != rank}

    def _forget(self, keys: Collection[Key]) -> None:
        self.waiting = {key: stop for key, stop in self.waiting.items() if key not in keys}

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that wait for a line, ascending."""
        return tuple(sorted({rank for rank, _ in self.waiting}))
