"""Who listens to the ranks of a mesh, besides those that wait for an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..wire.lane import Frames
from ..wire.messages import AnyMessage
from ..wire.post import Hearer
from ..wire.tape import Event

if TYPE_CHECKING:
    from .reshape import Reshape
    from .roster import Roster


class Audience(Hearer, Protocol):
    """Who wants to see what ranks print, and what they say after their answers."""

    def on_output(self, rank: int, event: Event) -> None: ...


class Hub(Protocol):
    """Who takes what is not an answer to this controller's own calls: the root node."""

    def on_other(self, roster: Roster, rank: int, message: AnyMessage, frames: Frames) -> None: ...

    def on_rank_gone(self, roster: Roster, rank: int, why: str) -> None: ...

    def on_stopped(self, roster: Roster) -> None:
        """The mesh was taken down; its ranks may have ended long before."""
        ...

    def on_rank_back(self, roster: Roster, rank: int) -> None: ...

    def on_renumbered(self, roster: Roster, plan: Reshape, old: int) -> None:
        """The mesh has another number than `old`, and its ranks are others by theirs."""
        ...
