"""What ranks print, where no notebook listens: on the streams of the program that called them, as it comes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ..system.own_streams import write
from ..wire.tape import Event, Text

if TYPE_CHECKING:
    from ..wire.tape import Stream
    from .forwarding import Forwarding
    from .roster import Roster


class Echo:
    """Passes on whole lines; what is left of one when a call is answered comes before the answer."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int, Stream], list[str]] = {}  # in pieces: a line may have thousands
        self._forwarded: dict[Roster, Forwarding] = {}  # of meshes whose program has asked for that
        self._lock = threading.Lock()  # the loop's thread hears, and who takes a mesh down settles

    def on_said(self, roster: Roster, rank: int, event: Event) -> None:
        if not isinstance(event, Text):
            return  # displays are for notebooks
        place = (roster.mesh, rank, event.stream)
        with self._lock:
            lines, end, rest = event.text.rpartition("\n")
            if end:
                whole = "".join([*self._open.pop(place, ()), lines, end])
                forwarding = self._forwarded.get(roster)
                if forwarding is None:
                    write(event.stream, whole)
                else:
                    forwarding.take(rank, event.stream, whole)
            if rest:
                self._open.setdefault(place, []).append(rest)

    def forward(self, roster: Roster, forwarding: Forwarding | None) -> None:
        """From here on, lines of this mesh go this way; or, with None, as they come, where they went another."""
        with self._lock:
            former = self._forwarded.pop(roster, None)
            if forwarding is not None:
                self._forwarded[roster] = forwarding
        if former is not None:
            former.flush()
        if forwarding is not None and forwarding.window is not None:
            roster.reactor.schedule(lambda: self._tick(roster, forwarding, 0.0))

    def _tick(self, roster: Roster, forwarding: Forwarding, window: float) -> None:
        """On the loop: at the end of each window, for as long as lines go this way."""
        if self._forwarded.get(roster) is forwarding:
            if window:
                forwarding.flush()
            seconds = forwarding.window or 0.0
            roster.reactor.later(seconds, lambda: self._tick(roster, forwarding, seconds))

    def settle(self) -> None:
        with self._lock:
            left, self._open = self._open, {}  # first: what cannot be written now cannot be later
            for (_, _, stream), rest in left.items():
                write(stream, "".join(rest))
