"""A rank that is debugged, as the session has it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from ..debug.framing import Message
from .adapter import Adapter


class Who(Protocol):
    """A rank, for whom it is debugged."""

    @property
    def label(self) -> str:
        """What stands before its frames: `rank 1`."""
        ...

    @property
    def title(self) -> str:
        """The name that it has as a thread: `rank 1 · dp=0,tp=1`."""
        ...

    def is_busy(self) -> bool:
        """Does it run something of the user's?"""
        ...

    def hold(self, is_held: bool) -> None:
        """It has stopped in the debugger, or goes on."""


@dataclass(slots=True)
class Debuggee:
    """A rank that is debugged."""

    number: int
    who: Who
    adapter: Adapter
    stopped: Message = field(default_factory=dict[str, Any])
    """What its debugger said of its last stop."""
    frames: list[Message] = field(default_factory=list[Message])
    """Its frames, in its own numbers, from when they were first asked for until it goes on."""
