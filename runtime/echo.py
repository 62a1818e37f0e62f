"""What ranks print, where no notebook listens: on the streams of the program that called them, as it comes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .own_streams import write
from .wire.tape import Event, Text

if TYPE_CHECKING:
    from .roster import Roster
    from .wire.tape import Stream


class Echo:
    """Passes on whole lines; what is left of one when a call is answered comes before the answer."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int, Stream], list[str]] = {}  # in pieces: a line may have thousands
        self._lock = threading.Lock()  # the loop's thread hears, and who takes a mesh down settles

    def on_said(self, roster: Roster, rank: int, event: Event) -> None:
        if not isinstance(event, Text):
            return  # displays are for notebooks
        place = (roster.mesh, rank, event.stream)
        with self._lock:
            lines, end, rest = event.text.rpartition("\n")
            if end:
                write(event.stream, "".join([*self._open.pop(place, ()), lines, end]))
            if rest:
                self._open.setdefault(place, []).append(rest)

    def settle(self) -> None:
        with self._lock:
            left, self._open = self._open, {}  # first: what cannot be written now cannot be later
            for (_, _, stream), rest in left.items():
                write(stream, "".join(rest))
