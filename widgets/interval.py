"""The time between two cells of a notebook that a program runs: what is said then waits for the next cell."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

_MOST = 1000
"""Messages that wait: of more, as where no cell follows for long, the last ones."""


class Interval:
    """Holds messages back from the end of a cell to the beginning of the next one.

    Example:
        >>> interval, said = Interval(), []
        >>> interval.hold(lambda: said.append("while a cell runs"))
        False
        >>> interval.begin()
        >>> interval.hold(lambda: said.append("between"))
        True
        >>> interval.end()
        >>> said
        ['between']
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # the loop speaks while the main thread begins a cell
        self._is_on = False
        self._held: deque[Callable[[], object]] = deque(maxlen=_MOST)

    def begin(self, *_: object) -> None:
        """A cell has ended."""
        if threading.current_thread() is threading.main_thread():  # not one beside it, in a subshell
            self._is_on = True

    def end(self, *_: object) -> None:
        """The next one begins: say what was held back."""
        with self._lock:
            self._is_on = False
            held, self._held = self._held, deque(maxlen=_MOST)
            for send in held:
                send()

    def hold(self, send: Callable[[], object]) -> bool:
        """Whether no cell runs, and `send` is to be called when one does."""
        with self._lock:
            if self._is_on:
                self._held.append(send)
            return self._is_on


interval = Interval()
"""That of this process's notebook."""
