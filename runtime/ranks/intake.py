"""Who reads the control lane of a rank: its control thread, or an actor's own thread while it has nothing to do.

A call that the control thread reads must be handed to the thread of its actor, which costs more than all the rest of
it. So a sync actor that is called twice in a row is made the reader: while it has nothing to do it waits for the lane
itself, and runs what it reads (leader/followers, as the controller's loop does: `wire.reactor`). The kernel decides
whom a message wakes: both threads wait by an epoll of their own with EPOLLEXCLUSIVE, the actor's first in line; while
the actor works nobody waits there, and the control thread hears of what comes. Async actors do not read: the loop of
one, woken for a message, may run something long before it comes to reading, and nobody else was woken.

No message may be left lying. The control thread sleeps only after it has found the lane empty, and the reader rings for
it whenever it was woken by the lane and does not read.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol

from ..errors import LinkClosed
from ..wire.awake import Awake
from ..wire.lane import Frames, Lane
from ..wire.messages import Answer, AnyMessage, Ask, Call, Fault, Interrupt, Note, PortSend, Reply, Sample, Strike

HOLD_BACK = 0.001
"""Seconds for which the control thread leaves what has come to a reader that is at work, and may soon be back."""

Received = tuple[AnyMessage, Frames, list[int]]
"""A message, its frames and the descriptors that came with it."""

_IN_ANY_ORDER = (Ask, Interrupt, Strike, Sample, Reply, Answer, Note, PortSend, Fault)
"""Calls may overtake these: they are answered, or put on the loop, beside what actors do."""


class Jobs(Protocol):
    """The messages of one sync actor, in order. One thread takes them, any may add some, or empty it."""

    def put(self, item: Any, /) -> None: ...
    def get(self) -> Any: ...
    def get_nowait(self) -> Any: ...
    def close(self) -> None:
        """Nobody takes any more."""


class PlainJobs(SimpleQueue[Any]):
    """Those of actors whose threads read no lane."""

    def close(self) -> None:
        """There is nothing to close."""


class Intake(Protocol):
    """What the control thread reads from."""

    def next(self) -> Received:
        """Wait for the next message that it has to deal with. Raises `LinkClosed` when the controller is gone."""
        ...

    def jobs(self, actor: int) -> Jobs:
        """A new queue for the messages of this actor."""
        ...


class Solo:
    """The control thread alone reads: where lanes cannot be waited for by several."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    def next(self) -> Received:
        return *self._lane.recv(), self._lane.fds

    def jobs(self, actor: int) -> Jobs:
        return PlainJobs()


class Shared:
    """The control thread and one actor read. `on_call` puts a call where it belongs; it must not wait.

    `is_awaited` tells whether somebody in this process blocks on an answer, which comes over this lane. `stays_awake`
    says whether an actor that reads does so before it sleeps (`wire.awake`).
    """

    def __init__(
        self,
        lane: Lane,
        on_call: Callable[[Call, Frames], object],
        is_awaited: Callable[[], bool] = lambda: False,
        stays_awake: bool = False,
    ) -> None:
        self._lane = lane
        self._on_call = on_call
        self._is_awaited = is_awaited
        self._stays_awake = stays_awake
        self._taking = threading.Lock()  # from a look at what was read before to where the next message is put
        self._handed: deque[Received] = deque()  # read by the reader, for the control thread
        self._queues: weakref.WeakValueDictionary[int, _ActorsJobs] = weakref.WeakValueDictionary()
        self._called = 0  # the actor that was called last
        self._is_empty = True  # the control thread has found the lane so since it was last woken
        self._stuck_at = -1  # the turn of the reader that has taken too long
        self.turns = 0
        """How often the reader has come for something to do."""
        self.reader: _ActorsJobs | None = None
        """Whose thread may read. Changes under `_taking`."""
        self._control = _Desk(lane.link.fileno())

    @staticmethod
    def is_possible(lane: Lane) -> bool:
        """Whether this system and this kind of lane have what it takes."""
        is_plain = lane.link.is_level_triggered and lane.link.largest is not None
        return is_plain and hasattr(select, "EPOLLEXCLUSIVE") and hasattr(os, "eventfd")

    def jobs(self, actor: int) -> Jobs:
        queue = self._queues[actor] = _ActorsJobs(self, actor)
        return queue

    def next(self) -> Received:
        while True:
            if self._is_empty and not self._handed:
                self._lane.send_releases()
                self._control.wait()
                self._is_empty = False  # whatever woke it: the lane is to be looked at before the next wait
            self._hold_back()
            with self._taking:
                if not self._handed:
                    self._is_empty = not self._take()
                if self._handed:
                    return self._handed.popleft()

    def _hold_back(self) -> None:
        """Give a reader that is at work a moment to come back: a short endpoint takes less than a hand-over."""
        turns = self.turns
        if self.reader is None or turns == self._stuck_at or self._handed or self._is_awaited():
            return
        time.sleep(HOLD_BACK)
        if self.turns == turns:
            self._stuck_at = turns

    def read(self, queue: _ActorsJobs) -> None:
        """On the reader's thread, with nothing to do: wait until something comes, and put it where it belongs."""
        self._lane.send_releases()
        try:
            has_mail = queue.wait()
        except OSError:  # no place to wait, as this process has too many files open: the control thread reads
            with self._taking:
                self.reader = None
            return
        with self._taking:
            if self.reader is queue and queue.is_empty():
                self._take_for_both()
            elif has_mail:
                self._control.ring()

    def _take_for_both(self) -> None:
        try:
            self._take()
        except LinkClosed:
            self.reader = None
            self._control.ring()  # which finds it closed too
        if self._handed:
            self._control.ring()

    def _take(self) -> bool:
        """Put all that is in the next datagram where it belongs; whether there was one."""
        found = self._lane.recv_nowait()
        if found is None:
            return False
        self._sort(*found)
        while self._lane.rest and (found := self._lane.recv_nowait()) is not None:
            self._sort(*found)  # what shares a datagram are calls, so none of it must wait for the control thread
        return True

    def desk(self) -> _Desk:
        """A place for an actor to wait at, before the control thread's in the line."""
        desk = _Desk(self._lane.link.fileno(), self._stays_awake)
        with self._taking:
            self._control.stand_back()
        return desk

    def close(self) -> None:
        """Nobody reads any more."""
        self._control.close()

    def _sort(self, message: AnyMessage, frames: Frames) -> None:
        """Put a call into the queue of its actor; the rest is for the control thread."""
        if not isinstance(message, Call):
            self._handed.append((message, frames, self._lane.fds))
            if not isinstance(message, _IN_ANY_ORDER):
                self.reader = None  # nobody reads on before it was heeded
            return
        self._on_call(message, frames)
        actor, self._called = self._called, message.actor
        if actor == message.actor and (self.reader is None or self.reader.actor != actor):
            self.reader = self._queues.get(actor)


class _ActorsJobs:
    """The messages of one sync actor, whose thread reads the lane while it is the reader."""

    def __init__(self, intake: Shared, actor: int) -> None:
        self.actor = actor
        self.is_waiting = False
        """Whether its thread waits for the lane, or is about to: who adds something rings."""
        self._intake = intake
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self.is_empty = self._queue.empty
        self.get_nowait = self._queue.get_nowait
        self._desk: _Desk | None = None  # from when it first is the reader
        self._ringing = threading.Lock()  # its thread may find the last item without the bell, and close that, at once
        self._closing: weakref.finalize[..., Any] | None = None

    def put(self, item: Any, /) -> None:
        self._queue.put(item)
        if self.is_waiting:
            with self._ringing:
                if self._desk is not None:
                    self._desk.ring()

    def wait(self) -> bool:
        """Until the lane has something, or somebody has added something here; whether the lane has."""
        if self._desk is None:
            self._desk = self._intake.desk()
            self._closing = weakref.finalize(self, self._desk.close)
            self._closing.atexit = False  # its thread may wait there still
        self.is_waiting = True
        has_mail = self.is_empty() and self._desk.wait()
        self.is_waiting = False
        return has_mail

    def close(self) -> None:
        """Its thread ends: two descriptors would be left to the garbage collector."""
        with self._ringing:
            self.is_waiting, self._desk = False, None
            if self._closing is not None:
                self._closing()

    def get(self) -> Any:
        intake = self._intake
        intake.turns += 1
        while intake.reader is self and self.is_empty():
            intake.read(self)
        return self._queue.get()


class _Desk:
    """Where a thread waits for a lane, or for a bell."""

    def __init__(self, lane: int, stays_awake: bool = False) -> None:
        self._lane = lane
        self._awake = Awake() if stays_awake else None
        self._poller = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poller.register(lane, select.EPOLLIN | select.EPOLLEXCLUSIVE)
        self._poller.register(self._bell, select.EPOLLIN)

    def stand_back(self) -> None:
        """Be the last in the line."""
        self._poller.unregister(self._lane)
        self._poller.register(self._lane, select.EPOLLIN | select.EPOLLEXCLUSIVE)

    def wait(self) -> bool:
        """Until the lane has something, or the bell rings; whether the lane has."""
        ready = self._awake.poll(self._poller.poll) if self._awake else self._poller.poll()
        if len(ready) == 1 and ready[0][0] != self._bell:
            return True
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        return len(ready) > 1

    def ring(self) -> None:
        os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        self._poller.close()
        os.close(self._bell)
