"""Who hears what is printed in a run, where the call itself brought no audience: the cell that made the call.

The notebook says who listens (`listen_by`). Where it does not, as in a script, what ranks print is echoed.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from .echo import Echo

if TYPE_CHECKING:
    from ..wire.tape import Event
    from .roster import Roster

MOST_SPANS = 1024
"""Neighbouring calls of one listener are one span: these many are many cells."""


class Listener(Protocol):
    """Hears the ranks of all meshes that work for it."""

    def on_said(self, roster: Roster, rank: int, event: Event) -> None:
        """A rank has printed something; on the thread that runs the loop."""
        ...

    def settle(self) -> None:
        """A call is about to be answered: what was said is to stand before what the caller says next."""
        ...


_find_listener: Callable[[], Listener | None] | None = None

ECHO = Echo()


def listen_by(find: Callable[[], Listener | None] | None) -> None:
    """How to find who listens to the code that makes a call; None: nobody does, and it is echoed."""
    global _find_listener
    _find_listener = find


def is_echoed() -> bool:
    """Does nobody listen, so that what ranks print goes to the program's own streams?"""
    return _find_listener is None


class Audiences:
    """The listeners of calls by number. Calls are numbered upwards, so a listener is kept as the spans of its calls.

    Example:
        >>> audiences = Audiences()
        >>> audiences.note(3, "cell 1"), audiences.note(9, "cell 2")
        (None, None)
        >>> audiences.of(2) is ECHO, audiences.of(8), audiences.of(9)
        (True, 'cell 1', 'cell 2')
    """

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._listeners: list[Listener | None] = []
        # Calls are made on any thread, what is said comes on the loop's, and a `__del__` that calls inside of either.
        self._lock = threading.RLock()

    def open(self, run: int) -> None:
        """The running code makes a call of this number."""
        if _find_listener is not None or self._firsts:
            self.note(run, None if _find_listener is None else _find_listener())

    def note(self, run: int, listener: Listener | None) -> None:
        """From this call on, until told otherwise, this is who listens."""
        with self._lock:
            place = bisect_right(self._firsts, run)
            if (self._listeners[place - 1] if place else None) is listener:
                return
            self._firsts.insert(place, run)
            self._listeners.insert(place, listener)
            if len(self._firsts) > MOST_SPANS:
                del self._firsts[0], self._listeners[0]

    def of(self, run: int) -> Listener | None:
        """Who hears this call, if there is anybody. Run 0 is what no call has made."""
        with self._lock:
            place = bisect_right(self._firsts, run)
            listener = self._listeners[place - 1] if place and run > 0 else None
        return listener if listener is not None or _find_listener is not None else ECHO
