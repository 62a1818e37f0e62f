"""One rank as the controller knows it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from .engines.base import Exit
from .vitals import Halt


@dataclass(slots=True)
class RankState:
    """What the controller knows of one rank."""

    rank: int
    is_ready: bool = False
    open_calls: list[int] = field(default_factory=list[int])
    exit: Exit | None = None
    pid: int = 0
    since: float = field(default_factory=time.monotonic)
    """When it took up what it does now, in seconds of `time.monotonic`."""
    trouble: str = ""
    is_doomed: bool = False
    """Whether it was killed on demand."""
    died_idle: bool = False
    """Whether it ended by itself, or by a stranger's hand, with nothing to do: no call failed that would tell."""
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

    def is_at_rest(self, has_actors: bool) -> bool:
        """Whether it may leave by itself, after its actors have cleaned up: they answer before their rank is ready."""
        return self.name == "idle" or (has_actors and self.name == "starting" and not self.open_calls)
