"""The driver of an actor whose endpoints are `def`: a thread of its own, so that it may block on other actors."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..cores import take_share
from ..scope import Context, enter
from ..shape import Point
from .cleanup import clean_up
from .failure import RemoteFailure
from .intake import Jobs
from .strikes import Strike
from .turns import INTERRUPTED, Job, conclude, is_interruptible, prepare

if TYPE_CHECKING:
    from .resident import Resident


class SyncDriver:
    """One thread that runs constructor, endpoints and hooks."""

    def __init__(self, resident: Resident, jobs: Jobs) -> None:
        self._resident = resident
        self._queue = jobs
        self.put: Callable[[Job | Callable[[], Any] | None], None] = jobs.put
        self._urgent: deque[Callable[[], Any]] = deque()
        self._ends: list[Callable[[], None]] = []
        self._is_working = False  # on a constructor or an endpoint
        self._job: Job | None = None  # the one whose endpoint runs, or ran last
        self._strike: Strike | None = None
        self._thread = 0
        self._is_cut = False

    def strikes(self) -> list[Strike]:
        self._refuse_queued(INTERRUPTED)
        job = self._job
        if job is None or not self._is_working or not is_interruptible(job):
            return []
        title = self._resident.title_of(job)
        self._strike = Strike(
            title, self._thread, lambda: self._job is job and self._is_working, _is_runner, self._strike
        )
        return [self._strike]

    def put_first(self, work: Callable[[], Any]) -> None:
        self._urgent.append(work)
        self.put(_nothing)  # for who waits for a message

    def wither(self) -> None:
        clean_up(self._resident)

    def start(self, on_made: Callable[[RemoteFailure | None], None], point: Point, run: int) -> None:
        threading.Thread(
            target=self._run,
            args=(on_made, point, run),
            name=f"meshbook-actor-{self._resident.instance.name}",
            daemon=True,
        ).start()

    def end(self, then: Callable[[], None]) -> None:
        self._ends.append(then)
        self.put(None)

    def cancel(self) -> None:
        """What it works on cannot be."""

    def leave(self) -> None:
        if self._is_working:
            self._is_cut = True
            self._refuse_queued()
            self._tell_end()

    def _refuse_queued(self, why: RemoteFailure | None = None) -> None:
        others: list[Any] = []
        with contextlib.suppress(Empty):
            while True:
                job = self._queue.get_nowait()
                if isinstance(job, Job) and (why is None or is_interruptible(job)):
                    self._resident.refuse(job, why)
                else:
                    others.append(job)
        for other in others:
            self.put(other)

    def _tell_end(self) -> None:
        with contextlib.suppress(IndexError):  # another thread has told it
            self._ends.pop()()

    def _run(self, on_made: Callable[[RemoteFailure | None], None], point: Point, run: int) -> None:
        resident = self._resident
        self._thread = threading.get_ident()
        take_share()
        self._is_working = True
        resident.create(on_made, point, run)
        self._is_working = False
        while (job := self._queue.get()) is not None:
            while self._urgent:
                enter(Context(resident.instance, resident.instance.rank))
                self._urgent.popleft()()
            if isinstance(job, Job):
                self._serve(job)
            else:
                enter(Context(resident.instance, resident.instance.rank))
                job()
        enter(Context(resident.instance, resident.instance.rank))
        clean_up(resident)
        self._tell_end()

    def _serve(self, job: Job) -> None:
        resident = self._resident
        if resident.failure is not None or self._is_cut:
            resident.refuse(job)
            return
        self._job = job
        self._is_working = True
        turn = resident.begin_turn(job)
        result, error = None, None
        port = None
        is_struck = False
        try:
            method, args, kwargs, port = prepare(resident, job)
            result = method(*args, **kwargs)
        except BaseException as raised:  # noqa: BLE001 - the rim: it travels to the caller, or to the owner
            error = raised
        while (strike := self._strike) is not None:
            try:
                is_struck = strike.end() or is_struck
                if self._strike is strike:  # and not one after it
                    self._strike = None
            except KeyboardInterrupt as late:  # it comes when the endpoint has just ended
                error = late
        conclude(resident, turn, result, error, port, is_struck=is_struck)
        error = None  # its traceback has this frame, and all that the user's frames hold: a circle
        self._is_working = False


def _is_runner(frame: FrameType) -> bool:
    return frame.f_code is _RUNNER


def _nothing() -> None: ...


_RUNNER = SyncDriver._serve.__code__  # pyright: ignore[reportPrivateUsage]
