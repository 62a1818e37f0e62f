"""The notebook's side of the debugger of one mesh: hears which ranks are stopped, and sends them lines."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import msgspec

from ...runtime.channel import Channel
from ...runtime.future import Future
from .events import LEAVE, Event, Stop, Went, decode
from .stops import Key, Stops, key_of
from .views import View

if TYPE_CHECKING:
    from ...runtime.controller.roster import Roster
    from .stoppable import Stoppable

_view_of = msgspec.msgpack.Decoder(View).decode

SOON = 0.3
"""Seconds in which a command is usually answered, or a step has come to its next stop."""

_KEPT = 4096

_TICK = 0.02

_ATTENTION = 0.5
"""Seconds after which it is no use any more that a rank hears it should stop."""


_served: WeakSet[Desk] = WeakSet()


def desk_of(roster: Roster) -> Desk | None:
    """The desk of the mesh with these ranks, if it has one."""
    return next((desk for desk in list(_served) if desk.mesh.roster is roster), None)


def still_waits(desk: Desk, stop: Stop) -> bool:
    """Does this one wait for a line, and does its rank live?"""
    return key_of(stop) in desk.stops.waiting and stop.rank not in desk.mesh.roster.dead()


class Desk:
    """Who of a mesh is stopped, and what they have said.

    What comes in comes on the loop's thread; who waits does so on the thread that runs the cell.
    """

    def __init__(self) -> None:
        self.port, self._receiver = Channel[bytes].open()
        self.stops = Stops()
        self.said: deque[tuple[int, str]] = deque(maxlen=_KEPT)
        """What ranks said when they went on: rank and text."""
        self.listeners: list[Callable[[], object]] = []
        """Called, on the loop's thread, when somebody stops, goes on or dies in the debugger."""
        self.held: frozenset[int] = frozenset()
        """The ranks that are stopped in JupyterLab's debugger."""
        self._mesh: Stoppable | None = None
        self._announced: set[Key] = set()
        self._hearing: list[set[Key]] = []
        self._num_serving = 0
        self._num_background = 0
        self._has_left = False
        self.console: Callable[[], bool] = lambda: False
        """Is there a console in which the user talks with who is stopped, rather than in the cells?"""
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._listen()

    def serve(self, mesh: Stoppable) -> None:
        """Belong to this mesh."""
        self._mesh = mesh
        _served.add(self)
        mesh.roster.on_change.append(self._on_change)

    @property
    def mesh(self) -> Stoppable:
        assert self._mesh is not None
        return self._mesh

    @property
    def is_wanted(self) -> bool:
        """Does a rank wait for a line, or is there something to show?"""
        return bool(self.stops.waiting or self.said)

    @contextmanager
    def heard_by(self, listener: Callable[[], object], *, serves: bool) -> Generator[None]:
        """Inside, `listener` is called at each stop; `serves`: it lets the user talk with who is stopped."""
        self.listeners.append(listener)
        self._num_serving += serves
        try:
            yield
        finally:
            self.listeners.remove(listener)
            self._num_serving -= serves

    @contextmanager
    def serving(self) -> Generator[None]:
        """Inside, the user talks with who is stopped."""
        self._num_serving += 1
        try:
            yield
        finally:
            self._num_serving -= 1

    @property
    def is_served(self) -> bool:
        """Does a cell run that lets the user talk with who is stopped?"""
        return self._num_serving > 0 or self.has_console

    def begin_background(self) -> None:
        """A cell is about to be sent that says who is stopped, and asks nothing; until `end_background`."""
        self._num_background += 1

    def end_background(self) -> None:
        self._num_background -= 1

    @property
    def is_in_background(self) -> bool:
        """Does a cell run that says who is stopped, and asks nothing?"""
        return self._num_background > 0

    @property
    def has_console(self) -> bool:
        return self.console()

    def view(self, stop: Stop) -> View | None:
        """Where it is, with its frames and variables; None where there is nothing to see."""
        data = self._tell([stop.rank], "view", stop.talk).get(stop.rank, b"")
        return _view_of(data) if data else None

    def stop_of(self, rank: int) -> Stop | None:
        """What a rank waits with; None where it is not stopped."""
        return next((stop for key, stop in self.stops.waiting.items() if key[0] == rank), None)

    def new_stops(self) -> list[Stop]:
        """Who is stopped and has not been told of by this yet."""
        with self._lock:
            new = [stop for key, stop in self.stops.waiting.items() if key not in self._announced]
            self._announced = set(self.stops.waiting)
        return new

    def dead(self) -> list[Stop]:
        """Drop the stops of ranks that have died in the debugger; which these were."""
        with self._lock:
            return self.stops.drop(self.mesh.roster.dead())

    def answer(self, stop: Stop, line: str) -> bool:
        """Send a line to who waits; whether it was still there."""
        self._has_left = self._has_left or line == LEAVE
        with self._lock:
            self.stops.answered(stop)
        told = self._tell([stop.rank], "answer", stop.talk, stop.turn, line)
        return told.get(stop.rank, False)

    def leave(self, ranks: Sequence[int] | None = None) -> None:
        """Let all go on; none stops again in what it runs now, nor an actor before the user's next cell."""
        self._has_left = True
        chosen = self.mesh.roster.alive() if ranks is None else ranks
        with self._lock:
            asking = [stop for stop in self.stops.waiting.values() if stop.rank in chosen]
            for stop in asking:
                self.stops.answered(stop)
        # What a rank asks just now it has answered itself, perhaps before the question comes, or has gone on since.
        with self._hearing_who_went() as gone:
            told = self._tell(chosen, "leave", self.mesh.last_cell)
            questions = {(rank, talk): turn for rank, left in told.items() for talk, turn in left}
            with self._lock:
                self.stops.leave({key: turn for key, turn in questions.items() if key not in gone})

    @contextmanager
    def _hearing_who_went(self) -> Generator[set[Key]]:
        """Inside, those of whom it is heard that they go on."""
        gone = set[Key]()
        self._hearing.append(gone)
        try:
            yield gone
        finally:
            self._hearing = [other for other in self._hearing if other is not gone]

    def begin_cell(self) -> None:
        """The user has begun another cell: where stops were passed over, they are heeded again."""
        if self._has_left and not self.mesh.is_down:
            self._has_left = False
            with self._lock:
                self.stops.left = {}
            self._tell(self.mesh.roster.alive(), "heed")

    def choose(self, rank: int) -> bool:
        """Give a rank the focus; whether it is stopped."""
        with self._lock:
            return self.stops.choose(rank) is not None

    def mute(self, stop: Stop) -> None:
        """What it had to say has been shown: it waits on."""
        with self._lock:
            self.stops.mute(stop)

    def dismiss(self, stop: Stop) -> None:
        """End one conversation."""
        self.answer(stop, LEAVE)

    def attach(self, rank: int) -> str | None:
        """See `Debugger.attach`; None where the rank does not answer."""
        return self._tell([rank], "attach", time.time() + _ATTENTION).get(rank)

    def inspect(self, rank: int) -> bool:
        """See `Debugger.inspect`."""
        return self._tell([rank], "inspect").get(rank, False)

    def completions(self, stop: Stop, prefix: str) -> list[str]:
        """What could stand at its prompt where this begins."""
        return self._tell([stop.rank], "completions", stop.talk, prefix).get(stop.rank, [])

    def wait(self, is_so: Callable[[], bool], seconds: float = SOON) -> bool:
        """Wait until something is so that events or the end of a run bring about; whether it is."""
        deadline = time.monotonic() + seconds
        while not is_so():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._news.clear()
            self.mesh.roster.reactor.wait(self._news, min(left, _TICK))
        return True

    def has_come_back(self, key: Key) -> bool:
        """Does this conversation ask again, or is its rank gone?"""
        return key in self.stops.waiting or key[0] in self.mesh.roster.dead()

    def take_said(self) -> list[tuple[int, str]]:
        """What ranks said last when they went on, since the last time."""
        said: list[tuple[int, str]] = []
        while self.said:
            said.append(self.said.popleft())
        return said

    def _listen(self) -> None:
        """Take what comes, one after the other."""
        future = self._receiver.recv()
        future.add_done_callback(self._on_event)

    def _on_event(self, came: Future[bytes]) -> None:
        self._listen()
        self._take(decode(came.get()))
        self._notify()

    def _take(self, event: Event) -> None:
        with self._lock:
            self.stops.take(event)
            if isinstance(event, Went):
                for gone in self._hearing:
                    gone.add(key_of(event))
        if isinstance(event, Went) and event.out.strip():
            self.said.append((event.rank, event.out))

    def _on_change(self, rank: int) -> None:
        """It has come or gone: a new process counts its conversations anew."""
        if not (self.stops.left or self.stops.waiting):
            return  # nearly always, and each answer of a rank comes by here
        with self._lock:
            self.stops.renew(rank)
        if any(key[0] == rank for key in self.stops.waiting):
            self._notify()

    def _notify(self) -> None:
        self._news.set()
        for listener in list(self.listeners):
            listener()

    def _tell(self, ranks: Sequence[int], step: str, *args: Any) -> dict[int, Any]:
        return self.mesh.tell_debugger(ranks, step, *args)
