"""Interrupting what actors do: `KeyboardInterrupt` where an endpoint is, as Ctrl-C raises it in a cell.

Signals reach the main thread only, and actors have threads of their own. There it is raised from outside, which no
`try` or lock of the runtime is made for: so only while the user's code runs, or where the runtime is known to bear it.
What prints meets it when that is done, what waits for an answer is told to stop waiting, what is awaited is cancelled.
"""

from __future__ import annotations

import _thread
import asyncio
import gc
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, NamedTuple

from ..future import Promise
from ..groups import waits
from ..system.ours import is_ours
from . import offspring, unlooped
from .loading import is_loading
from .raising import be_done_with_raising, raise_in, unmet

PAUSES = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064)
"""Seconds between two attempts: the runtime may be at work for the endpoint, or code in C that nothing interrupts."""

_BEARS_IT = {unlooped.__file__, waits.__file__}
"""Files of ours that an exception may strike anywhere: what they do they do between two instructions."""

_WAITING: CodeType = Promise[Any].block.__code__


def strike_all(strikes: Sequence[Strike]) -> list[str]:
    """Interrupt each as soon as it can be, and wait a moment for that; the endpoints that were struck at, each once.

    What their threads have started hears it too: a `subprocess.run` would wait its command out. It hears it after the
    endpoint, or else that would see its command end, and go on.
    """
    struck = time.perf_counter()
    left = _attempted(strikes)
    has_reached = False
    for seconds in PAUSES:
        if not has_reached and all(strike.is_under_way for strike in strikes):
            has_reached = _reach_out(strikes, struck)
        if not left:
            break
        time.sleep(seconds)
        left = _attempted(left)
    if not has_reached:  # `os.system`, which our own code is around
        _reach_out(strikes, struck)
    return sorted({strike.title for strike in strikes})


def _attempted(strikes: Sequence[Strike]) -> list[Strike]:
    """Those with which something is left to be done."""
    return [strike for strike in strikes if not strike.attempt()]


def _reach_out(strikes: Sequence[Strike], struck: float) -> bool:
    """Interrupt what the threads have started; True, once that is done."""
    if strikes and offspring.are_there_any():
        offspring.interrupt_those_of_threads(_beginnings(strikes), struck)
    return True


def _beginnings(strikes: Sequence[Strike]) -> dict[int, float]:
    """When what is struck at has begun on each thread, by the system's number of it."""
    numbers = {thread.ident: thread.native_id for thread in threading.enumerate()}
    began: dict[int, float] = {}
    for target in (strike.target for strike in strikes):
        number = numbers.get(target.thread)
        if number is not None:
            began[number] = min(target.began, began.get(number, target.began))
    return began


def strike_again(error: KeyboardInterrupt) -> bool:
    """On the thread where it was raised and lost: let it come again, if it is of a strike. Whether it will."""
    strike = _struck_by.pop(id(error), None)
    return strike is not None and strike.again()


class Target(NamedTuple):
    """One turn of an actor, as what strikes at it sees it."""

    thread: int
    began: float
    """By `time.perf_counter`."""
    is_at_work: Callable[[], bool]
    """Whether the turn goes on still."""
    is_runner: Callable[[FrameType], bool]
    """Whether a frame is the one that runs its endpoint."""


class Strike:
    """An interrupt of one turn of an actor. It is raised once, or again if it is lost."""

    _is_sudden = True
    """Whether it may be raised at any line of the user's."""

    def __init__(self, title: str, target: Target, former: Strike | None = None) -> None:
        """`former` is the one before, which may have been raised in the same turn."""
        self.title = title
        """The endpoint, as `trainer.step`."""
        self.has_come = False
        """Whether it was raised, told or cancelled."""
        self.target = target
        self._thread, self._is_at_work, self._is_runner = target.thread, target.is_at_work, target.is_runner
        self._former = former
        self._is_pending = False
        self._is_over = False
        self._raised = 0  # the identity of what was raised
        self._lock = threading.Lock()  # the turn must not end while it is decided whether it runs
        self._error = type("KeyboardInterrupt", (KeyboardInterrupt,), {"__new__": self._make})

    @property
    def is_under_way(self) -> bool:
        """Has it been raised, or is it when the thread is back from C? Or is nothing left to be struck at?"""
        return self.has_come or self._is_pending or self._is_over or not self._is_at_work()

    def attempt(self) -> bool:
        """From another thread: interrupt it, if that may be where it is now. Whether nothing is left to be done."""
        with self._lock:
            with _alone():
                promise = self._act()
            if promise is not None:
                promise.heed_strikes()
            return self.has_come or self._is_over or not self._is_at_work()

    def _act(self) -> Promise[Any] | None:
        """Interrupt what the thread does now, if that may be; what is given is to be told so."""
        if self.has_come or self._is_over or not self._is_at_work():
            return None
        frame = sys._current_frames().get(self._thread)  # pyright: ignore[reportPrivateUsage] - it is documented
        promise = self._waits_for(frame)
        if promise is not None:
            self.has_come = True
            promise.strike(self._thread)
        elif self._is_sudden and self._is_in_users(frame):
            self._is_pending = True
            raise_in(self._thread, self._error)
        else:
            unmet[self._thread] = self._meet
        return promise

    def end(self) -> bool:
        """On its thread: the endpoint has ended, and what was not raised is not raised any more. Whether it was."""
        with self._lock:
            has_come, self._is_over = self.has_come, True
            unmet.pop(self._thread, None)
            _struck_by.pop(self._raised, None)
            if self._is_pending and not has_come:
                self._is_pending = False
                be_done_with_raising()
        came_before = self._former is not None and self._former.end()
        return has_come or came_before

    def _make(self, *_: object) -> KeyboardInterrupt:
        """What is raised in the thread, as it comes there."""
        self.has_come = True
        error = KeyboardInterrupt("interrupted")
        self._raised = id(error)
        _struck_by[self._raised] = self
        return error

    def again(self) -> bool:
        """On its thread, which may hold the lock: what was raised is lost. Whether it comes again."""
        self.has_come = False
        try:
            _thread.start_new_thread(strike_all, ([self],))
        except RuntimeError:  # no thread is left
            return False
        return True

    def _meet(self) -> None:
        """On its thread, where the runtime has done something for the endpoint, if it was that."""
        with self._lock:
            if self.has_come or self._is_over or not self._is_at_work():
                return
            if not any(self._above(sys._getframe())):  # pyright: ignore[reportPrivateUsage] - it is documented
                return
            del unmet[self._thread]
            if self._is_pending:
                be_done_with_raising()
            self.has_come = True
        raise KeyboardInterrupt("interrupted")

    def _waits_for(self, frame: FrameType | None) -> Promise[Any] | None:
        """What the endpoint blocks on."""
        for each in self._above(frame):
            if each.f_code is _WAITING:
                return each.f_locals["self"]
        return None

    def _is_in_users(self, frame: FrameType | None) -> bool:
        """Whether only such code runs for the endpoint as an exception may strike anywhere."""
        above = list(self._above(frame))
        return (
            bool(above)
            and not is_loading(frame)
            and not any(is_ours(file) and file not in _BEARS_IT for file in map(_file, above))
        )

    def _above(self, frame: FrameType | None) -> Generator[FrameType]:
        """The frames from the innermost out to the endpoint's own; none where the thread runs no endpoint."""
        frames: list[FrameType] = []
        while frame is not None and not self._is_runner(frame):
            frames.append(frame)
            frame = frame.f_back
        if frame is not None:
            yield from frames


_struck_by: dict[int, Strike] = {}
"""The strikes that were raised, by the identity of the error, until their turn is over."""


class AwaitedStrike(Strike):
    """The same of an endpoint that is awaited, which is cancelled there.

    What is raised from outside might only come when it has begun to await, in the middle of its loop: a callback would
    be lost, and with it whoever waits for that.
    """

    _is_sudden = False

    def __init__(
        self, title: str, target: Target, task: asyncio.Task[Any], former: AwaitedStrike | None = None
    ) -> None:
        super().__init__(title, target, former)
        self._cancelled_before = former
        self._task = task
        self._was_asked = False
        self._is_cancelled = False

    def attempt(self) -> bool:
        if self._was_asked:
            return super().attempt()
        self._was_asked = True
        try:
            self._task.get_loop().call_soon_threadsafe(self._cancel)
        except RuntimeError:  # the actor has ended, and closed its loop
            return True
        return False

    def _cancel(self) -> None:
        with self._lock:
            if not (self.has_come or self._is_over) and self._is_at_work():
                self.has_come = self._is_cancelled = True
                self._task.cancel()

    def has_cancelled(self) -> bool:
        """Whether it was cancelled, once: the task goes on with the next message."""
        was_cancelled, self._is_cancelled = self._is_cancelled, False
        if was_cancelled:
            self._task.uncancel()
        former = self._cancelled_before
        return (former is not None and former.has_cancelled()) or was_cancelled


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename


_one = threading.Lock()  # of two ranks that are threads the second would put the long interval back for good


@contextmanager
def _alone() -> Generator[None]:
    """Nothing else in this process runs Python inside: what is seen of a thread still holds when it is acted on.

    Nothing inside may let go of the interpreter, as writing to a file does: a thread that loops would have it for the
    whole long interval then. Garbage does when it is collected, such as process groups, which wait for their threads.
    """
    with _one:
        time.sleep(0)  # who waits for the interpreter has it now, and is not heard again before the interval is over
        former, collects = sys.getswitchinterval(), gc.isenabled()
        sys.setswitchinterval(1.0)
        gc.disable()
        try:
            yield
        finally:
            if collects:
                gc.enable()
            sys.setswitchinterval(former)
