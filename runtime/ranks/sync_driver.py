"""The driver of an actor whose endpoints are `def`: a thread of its own, so that it may block on other actors."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..shape import Point
from ..system.cores import take_share
from .children import end_child
from .cleanup import cleaner, gone, stop_owned
from .driver import Driver
from .failure import RemoteFailure
from .intake import Jobs
from .strikes import Strike, Target
from .turns import CLEANUP, CONSTRUCTOR, INTERRUPTED, Job, Work, conclude, is_interruptible, prepare

if TYPE_CHECKING:
    from .resident import Resident


class SyncDriver(Driver):
    """One thread that runs constructor, endpoints and hooks."""

    def __init__(self, resident: Resident, jobs: Jobs) -> None:
        super().__init__(resident)
        self._queue = jobs
        self.put = jobs.put
        self._kept: list[Any] = []  # what an interrupt has let pass: older than all that is in the queue
        self._sifting = threading.Lock()  # of the one above: other threads refuse what waits
        self._is_sifted = False
        """Whether it holds something, or is about to."""
        self._urgent: deque[Callable[[], Any]] = deque()
        self._work: Work | None = None  # what of the user's runs
        self._began = 0.0  # when it has begun, by `time.perf_counter`
        self._is_ending = False
        self._strike: Strike | None = None

    def strikes(self) -> list[Strike]:
        self._refuse_queued(INTERRUPTED)
        work = self._work
        if work is None or not is_interruptible(work):
            return []
        target = Target(self._thread, self._began, lambda: self._work is work, _is_runner)
        self._strike = Strike(self._resident.title_of(work), target, self._strike)
        return [self._strike]

    def put_first(self, work: Callable[[], Any]) -> None:
        self._urgent.append(work)
        self.put(_nothing)  # for who waits for a message

    def wither(self) -> None:
        """Stop the meshes that the actor owns, then run its `__cleanup__`; once."""
        self._enter_itself()
        stop_owned(self._resident)
        _, error = self._run_users(CLEANUP, cleaner(self._resident))
        gone(self._resident, error)

    def _put_end(self) -> None:
        self._queue.put(None)

    def cancel(self) -> None:
        """What it works on cannot be."""

    def leave(self) -> None:
        if self._work is not None and not self._is_ending:
            self._is_cut = True
            self._refuse_queued()
            self._tell_end()

    def _refuse_queued(self, why: RemoteFailure | None = None) -> None:
        refused: list[Job] = []
        with self._sifting:
            self._is_sifted = True
            found, self._kept = self._kept, []
            with contextlib.suppress(Empty):
                while True:
                    found.append(self._queue.get_nowait())
            for job in found:
                is_refused = isinstance(job, Job) and (why is None or is_interruptible(job))
                (refused if is_refused else self._kept).append(job)
            self._is_sifted = bool(self._kept)
        if self._is_sifted:
            self.put(_nothing)  # for who waits for a message
        for job in refused:
            self._resident.refuse(job, why)

    def _next_kept(self) -> Any:
        with self._sifting:
            job = self._kept.pop(0) if self._kept else _nothing
            self._is_sifted = bool(self._kept)
        return job

    def _run(self, on_made: Callable[[RemoteFailure | None], None], point: Point, run: int) -> None:
        resident = self._resident
        self._thread = threading.get_ident()
        take_share()
        said = resident.begin_creation(point, run)
        resident.conclude_creation(*self._run_users(CONSTRUCTOR, resident.maker()), said)
        on_made(resident.failure)
        while (job := self._next_kept() if self._is_sifted else self._queue.get()) is not None:
            while self._urgent:
                self._enter_itself()
                self._urgent.popleft()()
            if isinstance(job, Job):
                self._serve(job)
            else:
                self._enter_itself()
                job()
        self._enter_end()
        self._is_ending = True
        self.wither()
        self._queue.close()
        self._tell_end()

    def _run_users(self, work: Work, function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        """Call a constructor or `__cleanup__`: what it gives, or its error."""
        result, error = None, None
        self._began = time.perf_counter()
        self._work = work
        try:
            result = function()
        except BaseException as raised:  # noqa: BLE001 - the rim: it is the actor's end, or goes to the log
            error = raised
        self._work = None
        while self._strike is not None:
            try:
                self._end_strike()
            except KeyboardInterrupt as late:  # it comes when the function has just ended
                error = late
        end_child(error)
        try:
            return result, error
        finally:
            error = None  # its traceback has this frame, and all that the user's frames hold: a circle

    def _serve(self, job: Job) -> None:
        resident = self._resident
        if resident.failure is not None or self._is_cut:
            resident.refuse(job)
            return
        turn = resident.begin_turn(job)
        result, error = None, None
        port = None
        is_struck = False
        self._began = turn.started
        self._work = job
        try:
            method, args, kwargs, port = prepare(resident, job)
            result = method(*args, **kwargs)
        except BaseException as raised:  # noqa: BLE001 - the rim: it travels to the caller, or to the owner
            error = raised
        self._work = None
        while self._strike is not None:
            try:
                is_struck = self._end_strike() or is_struck
            except KeyboardInterrupt as late:  # as above
                error = late
        end_child(error)
        conclude(resident, turn, result, error, port, is_struck=is_struck)
        error = None  # as above

    def _end_strike(self) -> bool:
        """Whether it was raised."""
        strike = self._strike
        assert strike is not None
        has_come = strike.end()
        if self._strike is strike:  # and not one after it
            self._strike = None
        return has_come


def _is_runner(frame: FrameType) -> bool:
    return frame.f_code in _RUNNERS


def _nothing() -> None: ...


_RUNNERS = {SyncDriver._serve.__code__, SyncDriver._run_users.__code__}  # pyright: ignore[reportPrivateUsage]
