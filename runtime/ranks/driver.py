"""What the drivers of sync and of async actors have in common: a thread of their own, and who waits for its end."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..groups.waits import ACTOR_THREADS
from ..scope import Context, enter
from ..shape import Point
from .failure import RemoteFailure
from .strikes import Strike
from .turns import Job

if TYPE_CHECKING:
    from .resident import Resident


class Driver(ABC):
    """Takes the messages of one actor in order, on one thread."""

    put: Callable[[Job | Callable[[], Any]], None]
    """Takes a message, or something to be done between two messages."""

    def __init__(self, resident: Resident) -> None:
        self._resident = resident
        self._thread = 0  # its identifier, once it runs
        self._is_cut = False
        self._last_run: int | None = None
        self._ends: list[Callable[[], None]] = []

    def start(self, on_made: Callable[[RemoteFailure | None], None], point: Point, run: int) -> None:
        """Make the actor, in this run, tell how that went, and serve it from then on."""
        threading.Thread(
            target=self._run,
            args=(on_made, point, run),
            name=f"{ACTOR_THREADS}{self._resident.instance.name}",
            daemon=True,
        ).start()

    def end(self, then: Callable[[], None], run: int | None = None) -> None:
        """Stop after what is queued, and clean up; `then` is called when that is done, once.

        What is printed meanwhile belongs to `run`; None: to the last call.
        """
        self._ends.append(then)
        self._last_run = run
        self._put_end()

    def _enter_end(self) -> None:
        """What is queued is done."""
        self._enter_itself()
        if self._last_run is not None:
            self._resident.begin_run(self._last_run)

    def _enter_itself(self) -> None:
        """What runs next is for no message: its rank is that of the actor, not one in a slice that was called."""
        enter(Context(self._resident.instance, self._resident.instance.rank))

    def _tell_end(self) -> None:
        with contextlib.suppress(IndexError):  # another thread has told it
            self._ends.pop()()

    @abstractmethod
    def put_first(self, work: Callable[[], Any]) -> None:
        """Takes something to be done before all messages that wait."""

    @abstractmethod
    def strikes(self) -> list[Strike]:
        """Interrupts of all that it works on; what waits is refused."""

    @abstractmethod
    def wither(self) -> None:
        """The actor has failed for good: clean up, once."""

    @abstractmethod
    def cancel(self) -> None:
        """It was to end, and has had its time: what can be cancelled is, and what is queued is refused then."""

    @abstractmethod
    def leave(self) -> None:
        """It still works on what cannot be cancelled: tell the end all the same, and refuse what waits.

        It keeps its thread. `__cleanup__` runs if the constructor or endpoint ever returns, for as long as it takes.
        """

    @abstractmethod
    def _put_end(self) -> None: ...

    @abstractmethod
    def _run(self, on_made: Callable[[RemoteFailure | None], None], point: Point, run: int) -> None: ...
