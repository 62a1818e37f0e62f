"""One rank as the controller knows it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ..engines.base import Exit
from .vitals import Halt


@dataclass(slots=True)
class RankState:
    """What the controller knows of one rank."""

    rank: int
    is_ready: bool = False
    open_calls: list[int] = field(default_factory=list[int])
    """To actors of this rank, those on its main thread among them."""
    main_calls: set[int] = field(default_factory=set[int])
    """Those on its main thread, such as cells."""
    exit: Exit | None = None
    pid: int = 0
    since: float = field(default_factory=time.monotonic)
    """When it took up what it does now, in seconds of `time.monotonic`."""
    trouble: str = ""
    is_doomed: bool = False
    """Whether it was killed on demand."""
    is_replaced: bool = False
    """Whether that was to give it a new process, with new ones of its actors."""
    died_idle: bool = False
    """Whether it ended by itself, or by a stranger's hand, with nothing to do: no call failed that would tell."""
    keeps: set[int] = field(default_factory=set[int])
    """What its process was given to keep, by the giver's numbers: a new one in its place has nothing."""
    halt: Halt | None = None
    """Why it did not move when `Roster.look_at_vitals` was last called."""

    @property
    def name(self) -> str:
        """`starting`, `idle`, `busy`, `stuck` (it did not move when it was last looked at) or `dead`."""
        if self.exit is not None:
            return "dead"
        if self.halt is not None:
            return "stuck"
        if not self.is_ready:
            return "starting"
        return "busy" if self.open_calls else "idle"

    @property
    def is_at_work(self) -> bool:
        """Whether it is busy, moving or not: one that did not when it was last looked at may have gone on since."""
        return bool(self.open_calls) and self.is_ready and self.exit is None

    def take_up(self, call: int, on_main: bool) -> None:
        """A call goes out to it."""
        if not self.open_calls:
            self.since = time.monotonic()
        self.open_calls.append(call)
        if on_main:
            self.main_calls.add(call)

    def put_down(self, call: int) -> None:
        """It has answered, or will not."""
        if call in self.open_calls:
            self.open_calls.remove(call)
            self.main_calls.discard(call)

    def put_all_down(self) -> None:
        """It will answer nothing any more."""
        self.open_calls.clear()
        self.main_calls.clear()

    def can_leave(self, has_actors: bool) -> bool:
        """Whether it may leave by itself, after its actors have ended what they do and have cleaned up.

        One whose main thread is in a cell hears no goodbye, and one that starts and has no actors has nothing to end.
        """
        return not self.main_calls and (self.name in ("idle", "busy") or (has_actors and self.name == "starting"))
