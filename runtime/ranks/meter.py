"""What user code reports of itself on a rank: noted at once, sent a few times a second."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..system.forks import let_go_in_child
from ..wire.messages import BarState, Metered, Point

PACE = 0.1
"""Seconds between two messages of a rank of a small mesh."""

A_RANK = 0.001
"""Seconds that each rank of the mesh adds to that: the controller hears a thousand messages a second at most."""

MOST = 64
"""Points of one metric that travel in one message; of more, every other one is left out, as often as it takes."""


@dataclass(slots=True)
class Bar:
    """One loop with a progress; its own loop counts, the meter's thread reads."""

    number: int
    desc: str
    total: int | None
    done: int = 0
    is_over: bool = False
    started: float = field(default_factory=time.monotonic)
    _told: tuple[int, bool] = (-1, False)

    @property
    def has_told_end(self) -> bool:
        """Its loop may end at any time, also just after its news were taken."""
        return self._told[1]

    def news(self) -> BarState | None:
        """How far it is, if that has changed since the last time."""
        now = (self.done, self.is_over)
        if now == self._told:
            return None
        self._told = now
        total = -1 if self.total is None else self.total
        return BarState(self.number, self.desc, now[0], total, time.monotonic() - self.started, now[1])


class Meter:
    """Collects what is reported on one rank. `send` is called on the meter's own thread, which the first report starts.

    Example:
        >>> sent = []
        >>> meter = Meter(sent.append, num_ranks=2)
        >>> meter.log(7, {"loss": 0.5})
        >>> meter.close()
        >>> sent[0].points["loss"][0][:2]
        (7.0, 0.5)
    """

    def __init__(self, send: Callable[[Metered], object], num_ranks: int) -> None:
        self._send = send
        self._pace = max(PACE, A_RANK * num_ranks)
        self._points: dict[str, list[Point]] = {}
        self._counts: dict[str, int] = {}
        self._bars: dict[int, Bar] = {}
        self._numbers = itertools.count(1)
        self._lock = (
            threading.RLock()
        )  # of the above; user code reports, the thread takes; a signal's handler may report
        self._flushing = threading.Lock()  # what is taken first is sent first
        self._news = threading.Event()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        let_go_in_child(self)

    def log(self, step: float | None, values: Mapping[str, float]) -> None:
        """Note values; without a step they are counted, each name for itself."""
        now = time.time()
        with self._lock:
            for name, value in values.items():
                count = self._counts[name] = self._counts.get(name, -1) + 1
                points = self._points.setdefault(name, [])
                points.append((float(count if step is None else step), value, now))
                if len(points) > MOST:
                    del points[-2::-2]  # the last one stays
        self.wake()

    def open_bar(self, desc: str, total: int | None) -> Bar:
        """Begin to tell how far a loop is: count in its `done` and call `wake`."""
        bar = Bar(next(self._numbers), desc, total)
        with self._lock:
            self._bars[bar.number] = bar
        self.wake()
        return bar

    def wake(self) -> None:
        """There is something to send. Costs a fraction of a microsecond where that is known."""
        if not self._news.is_set() and not self._end.is_set():
            self._news.set()
            if self._thread is None:
                self._start()

    def flush(self) -> None:
        """Send what has come since the last time."""
        with self._flushing:
            with self._lock:
                points, self._points = self._points, {}
                bars = [state for bar in self._bars.values() if (state := bar.news()) is not None]
                self._bars = {number: bar for number, bar in self._bars.items() if not bar.has_told_end}
            if points or bars:
                self._send(Metered({name: tuple(each) for name, each in points.items()}, tuple(bars)))

    def close(self) -> None:
        """Send the rest, and nothing any more."""
        if not self._end.is_set():
            self._end.set()
            self._news.set()
            self.flush()

    def let_go(self) -> None:
        """In a forked child of the rank (a worker of a data loader): the way to the controller is its parent's."""
        self._end = threading.Event()  # to set that of before takes its lock, which the meter's thread may have held
        self._end.set()
        self._lock, self._flushing = threading.RLock(), threading.Lock()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="meshbook-meter", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while self._news.wait() and not self._end.is_set():
            self._news.clear()
            self.flush()
            self._end.wait(self._pace)
