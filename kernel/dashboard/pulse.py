"""The beat of a dashboard: a thread that looks at ranks while somebody watches, and sleeps while nobody does."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from .facts import RankFacts

HZ = 4.0
"""Looks a second."""

CALM = 1.0
"""Seconds between two looks when nothing has changed for a while."""

CALM_AFTER = 8
"""Looks without a change after which it is calm."""

BEAT = 15.0
"""Seconds after its last sign of life that a view counts as gone: it gives one every 5 s while it can be seen."""

CLOSEST = 0.05
"""Seconds between two looks however much happens: ranks that die together are told together."""


class Source(Protocol):
    """Where facts come from: `survey.MeshWatch`, or something made up for a measurement."""

    facts: list[RankFacts]
    finding: str
    late: str
    metric: str

    @property
    def axes(self) -> Mapping[str, int]: ...

    @property
    def is_over(self) -> bool: ...

    def refresh(self, now: float) -> None: ...

    def close(self) -> None: ...


class Viewer(Protocol):
    """Who draws what was seen; called on the pulse's thread."""

    def on_look(self, facts: Sequence[RankFacts], now: float) -> bool:
        """Here is how it is now; whether that is news."""
        ...

    def on_end(self, facts: Sequence[RankFacts], now: float) -> None:
        """There is nothing more to see; the facts are those of the last look, before the end."""
        ...


class Pulse:
    """Looks at a source `hz` times a second while views are there (`seen`), more rarely while nothing changes.

    `wake` makes it look at once, as a rank's death does. Ends by itself with its source. A look that fails is told
    once, and is a frame that stands still: the next may do better.
    """

    def __init__(
        self, source: Source, viewer: Viewer, hz: float = HZ, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.hz = hz
        self.count = 0
        """How often it has looked."""
        self._source = source
        self._viewer = viewer
        self._clock = clock
        self._views: dict[str, float] = {}
        self._wake = threading.Event()
        self._is_closed = self._has_failed = False
        self._lock = threading.Lock()  # of the views, which come and go on the kernel's threads
        self._thread = threading.Thread(target=self._run, name="meshbook-pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def seen(self, view: str) -> None:
        """A view gives a sign of life."""
        with self._lock:
            is_new = not self._views
            self._views[view] = self._clock()
        if is_new:
            self._wake.set()

    def unseen(self, view: str) -> None:
        """A view is gone, or hidden."""
        with self._lock:
            self._views.pop(view, None)

    def wake(self, *_: object) -> None:
        """Look now: something has happened."""
        self._wake.set()

    def close(self, timeout: float = 2.0) -> None:
        """End, as if the source were over."""
        self._is_closed = True
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    @property
    def is_watched(self) -> bool:
        """Is there a view that has lately given a sign of life?"""
        with self._lock:
            gone = [view for view, when in self._views.items() if self._clock() - when > BEAT]
            for view in gone:
                del self._views[view]
            return bool(self._views)

    def _run(self) -> None:
        source, still = self._source, 0
        try:
            while not (self._is_closed or source.is_over):
                if self.is_watched:
                    self._wake.clear()
                    still = 0 if self._has_news() else still + 1
                self._pause(still)
            if not self.count:
                source.refresh(self._clock())
            self._viewer.on_end(source.facts, self._clock())
        finally:
            source.close()

    def _has_news(self) -> bool:
        try:
            news = self._look()
        except Exception:  # noqa: BLE001 - the rim of this thread: without it nothing would move on the page any more
            if not self._has_failed:
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), self._thread)))
            self._has_failed = True
            return False
        self._has_failed = False
        return news

    def _look(self) -> bool:
        now = self._clock()
        self._source.refresh(now)
        self.count += 1
        return self._viewer.on_look(self._source.facts, now)

    def _pause(self, still: int) -> None:
        """Until the next look is due, something happens, or somebody comes to watch."""
        if not self.is_watched:
            self._wake.wait()  # a mesh that ends wakes it too
            self._wake.clear()
            return
        started = self._clock()
        self._wake.wait(CALM if still >= CALM_AFTER else 1 / self.hz)
        if self._wake.is_set() and self._clock() - started < CLOSEST and not self._is_closed:
            time.sleep(CLOSEST)
