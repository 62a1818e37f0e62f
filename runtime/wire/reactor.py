"""The one loop that watches every descriptor of the controller.

A background thread runs it, so that output, deaths and answers are seen while nobody waits. A thread that *does* wait
for an answer takes the loop over for that time (the leader/followers pattern of Schmidt et al.): the answer then
reaches it without a hand-over between threads, which costs 50 microseconds a call and, while another thread burns
Python, a whole GIL interval of 5 ms. At any moment exactly one thread runs the loop: it holds `_watch`.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import select
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Protocol

from ..system.forks import let_go_in_child
from .awake import Awake
from .deferred import Deferred

_LEASE = 0.02
"""Seconds for which a thread that has waited keeps the loop to itself, in case it soon waits again."""


_GLANCE = 0.02
"""Seconds after which a follower looks whether its event was set without a word (`announce`)."""


class Signal(Protocol):
    """What may be waited for, such as a `threading.Event`. Who sets it lets the loop know (`Reactor.wake`)."""

    def is_set(self) -> bool: ...


class When:
    """Is set while a condition holds. Who lets it come true lets the loop know.

    Example:
        >>> found = []
        >>> some = When(lambda: bool(found))
        >>> some.is_set(), found.append(1), some.is_set()
        (False, None, True)
    """

    __slots__ = ("_condition",)

    def __init__(self, condition: Callable[[], bool]) -> None:
        self._condition = condition

    def is_set(self) -> bool:
        return self._condition()


class Bell:
    """Wakes whoever watches `out`; any thread may ring.

    It is closed when the last who has it lets go of it, and not before: between a look whether it is open and the
    ring itself, its number could become that of another's file.
    """

    __slots__ = ("into", "out")

    def __init__(self, out: int, into: int) -> None:
        self.out, self.into = out, into
        for fd in (out, into):
            os.set_blocking(fd, False)

    def ring(self) -> None:
        try:
            os.write(self.into, b".")
        except BlockingIOError:
            return  # the pipe is full of rings that nobody has heard yet: one more would say nothing

    def silence(self) -> None:
        try:
            os.read(self.out, 4096)
        except BlockingIOError:
            return  # another turn has read it

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # where Python ends, `os` may be gone
        close(self.into)
        close(self.out)


class Reactor:
    """Watches descriptors and runs callbacks; `wait` blocks until an event is set, whoever runs the loop."""

    def __init__(self) -> None:
        self._poller = _Poller()
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._scheduled: deque[Callable[[], object]] = deque()
        self._timers: list[tuple[float, int, Callable[[], object]]] = []  # a heap, by when they are due
        self._numbers = itertools.count()  # of timers: callbacks have no order
        self._watch = threading.Lock()  # held by the thread that runs the loop
        self._awake = Awake()
        self._waiting: set[int] = set()  # threads that want the loop; the background thread stays out meanwhile
        self._lease_until = 0.0
        self._vacant = threading.Condition()
        self._closed = False
        self._leader = 0  # the thread that holds `_watch`
        self._followers = 0  # threads that wait while another leads
        self._news = threading.Condition()  # followers hear through it that an event was set, or that the lead is free
        self._bell: Bell | None = Bell(*os.pipe())
        self._poller.add(self._bell.out)
        self._callbacks[self._bell.out] = self._silence
        self._thread = threading.Thread(target=self._run, name="meshbook-io", daemon=True)
        self._thread.start()
        let_go_in_child(self)

    def add(self, fd: int, on_ready: Callable[[], object]) -> None:
        """Call `on_ready` whenever `fd` is readable or its other end is gone, on the thread that runs the loop."""
        self._callbacks[fd] = on_ready
        self._poller.add(fd)
        self._let_notice()

    def remove(self, fd: int) -> None:
        """Stop watching `fd`; to be called before it is closed."""
        if self._callbacks.pop(fd, None) is not None:
            self._poller.remove(fd)

    def watch_writes(self, fd: int, on: bool) -> None:
        """Also call the callback of `fd` when it can be written to."""
        if fd in self._callbacks:
            self._poller.set_writes(fd, on)
            self._let_notice()

    def schedule(self, call: Callable[[], object]) -> None:
        """Run `call` on the loop, soon; any thread may ask."""
        self._scheduled.append(call)
        self._ring()

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        """Run `call` on the loop when so many seconds are over, or a few milliseconds after; only the loop may ask."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), call))

    def announce(self, event: threading.Event) -> None:
        """Set `event` and wake who waits for it; any thread may."""
        event.set()
        self.wake()

    def wake(self) -> None:
        """Let all who wait look whether what they wait for is set; any thread may."""
        if self._leader != threading.get_ident():
            self._ring()
        if self._followers:
            self._tell_followers()

    def wait(self, event: Signal, timeout: float | None = None, *, stays_awake: bool = False) -> bool:
        """Block until `event` is set or `timeout` seconds are over; whether it is set.

        A thread that `stays_awake` does so for a moment before it sleeps (`awake`), for what may come at once.

        On the main thread Ctrl-C raises `KeyboardInterrupt`, between two callbacks and never inside one: an
        interrupt must not tear a message that is being handled.

        Raises:
            RuntimeError: this is a callback of the loop, which cannot wait for another; or the loop is closed.
        """
        __tracebackhide__ = True
        if event.is_set():
            return True
        here = threading.get_ident()
        if self._leader == here:
            raise RuntimeError("this would wait for an answer on the thread that receives it: `await` it instead")
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._closed:
            with Deferred(self._ring) as interrupt:
                self._waiting.add(here)
                try:
                    self._wait(event, deadline, interrupt, self._awake if stays_awake else None)
                finally:
                    self._waiting.discard(here)
            if not interrupt.came:
                break
            interrupt.deliver()  # Python's own handler raises; a user's may want the wait to go on
        if self._closed and not event.is_set():
            raise RuntimeError("the loop is closed: nothing comes any more")
        return event.is_set()

    @contextlib.contextmanager
    def alert(self) -> Generator[None]:
        """Let signals end the sleep of the loop: Python's own handling misses one that comes just before it.

        For a main thread that may sleep for hours; where messages come, the next one has the handler run.
        """
        bell = self._bell
        former = signal.set_wakeup_fd(bell.into if bell else -1, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(former)

    def perform(self, call: Callable[[], object]) -> None:
        """Run `call` on the loop, between two callbacks, and wait for it; what it raises is raised here."""
        done = threading.Event()
        raised: list[BaseException] = []

        def do() -> None:
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is for who waits
                raised.append(error)
            self.announce(done)

        self.schedule(do)
        self.wait(done)
        if raised:
            raise raised.pop()  # no frame of ours keeps it

    def let_finish(self) -> None:
        """Wait until the loop is done with what it does now."""
        self.perform(lambda: None)

    def close(self) -> None:
        """End the loop and its thread; descriptors that are still watched stay open."""
        if self._closed:
            return
        self._closed = True
        self._ring()
        self._tell_followers()
        with self._vacant:
            self._vacant.notify()
        self._thread.join()
        with self._watch:
            self._free()

    def let_go(self) -> None:
        """In a forked child: it has no thread for the loop, and what comes is its parent's."""
        if not self._closed:
            self._closed = True
            self._free()

    def _free(self) -> None:
        self._poller.close()
        if self._bell is not None:
            self._callbacks.pop(self._bell.out, None)
            self._bell = None  # it is closed as soon as nobody rings it

    def _run(self) -> None:
        while not self._closed:
            with self._vacant:
                while self._is_taken() and not self._closed:
                    self._vacant.wait(_LEASE)
            with self._watch:
                self._leader = threading.get_ident()
                if not self._closed and not self._is_taken():
                    self._turn(None)
                self._leader = 0
            if self._followers:
                self._tell_followers()

    def is_wanted(self) -> bool:
        """Whether a thread waits for something now."""
        return bool(self._waiting)

    def _is_taken(self) -> bool:
        return bool(self._waiting) or time.monotonic() < self._lease_until

    def _wait(self, event: Signal, deadline: float | None, interrupt: Deferred, awake: Awake | None) -> None:
        """Lead the loop, or follow while another does, until there is no need to wait any more."""
        while not (event.is_set() or interrupt.came or self._closed):
            if deadline is not None and time.monotonic() >= deadline:
                return
            if not self._watch.acquire(blocking=False):
                self._follow(event, deadline)
                continue
            self._leader = threading.get_ident()
            try:
                self._lead(event, deadline, interrupt, awake)
            finally:
                self._lease_until = time.monotonic() + _LEASE
                self._leader = 0
                self._watch.release()
                if self._followers:
                    self._tell_followers()
            return

    def _follow(self, event: Signal, deadline: float | None) -> None:
        """Wait for a moment, or until something is said that may end the wait."""
        with self._news:
            self._followers += 1
            try:
                if self._leader == self._thread.ident:
                    self._ring()  # it stays out while another thread wants to lead
                if not event.is_set() and self._watch.locked():
                    left = _GLANCE if deadline is None else deadline - time.monotonic()
                    self._news.wait(max(0.0, min(_GLANCE, left)))
            finally:
                self._followers -= 1

    def _tell_followers(self) -> None:
        with self._news:
            self._news.notify_all()

    def _lead(self, event: Signal, deadline: float | None, interrupt: Deferred, awake: Awake | None) -> None:
        while not (event.is_set() or interrupt.came or self._closed):
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return
            self._turn(left, awake)

    def _turn(self, timeout: float | None, awake: Awake | None = None) -> None:
        if self._timers:
            left = max(0.0, self._timers[0][0] - time.monotonic())
            timeout = left if timeout is None else min(left, timeout)
        timeout = 0 if self._scheduled else timeout
        for fd, _ in awake.poll(self._poller.poll, timeout) if awake else self._poller.poll(timeout):
            on_ready = self._callbacks.get(fd)
            if on_ready is not None:
                contained(on_ready)
        if self._scheduled:
            for _ in range(len(self._scheduled)):
                contained(self._scheduled.popleft())
        while self._timers and self._timers[0][0] <= time.monotonic():
            contained(heapq.heappop(self._timers)[2])

    def _let_notice(self) -> None:
        """Whoever sleeps in `poll`, unlike in `epoll`, does not see what is watched since."""
        if not self._poller.is_epoll and self._leader != threading.get_ident():
            self._ring()

    def _ring(self) -> None:
        bell = self._bell
        if bell is not None:
            bell.ring()

    def _silence(self) -> None:
        bell = self._bell
        if bell is not None:
            bell.silence()


def contained(call: Callable[[], object]) -> None:
    """Run a callback. One that raises is reported, and ends neither the loop nor the wait of whoever leads it."""
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - the rim of the loop: all meshes hang on it
        report(error)


def report(error: BaseException) -> None:
    """Tell of what a callback has raised: for those who contain one in a loop of their own, without a call more."""
    if isinstance(error, KeyboardInterrupt):  # of the main thread, which leads the loop
        raise error
    if isinstance(error, SystemExit):  # which the hook of threads would not report
        traceback.print_exception(error)
    else:
        told = type(error), error, error.__traceback__, threading.current_thread()
        threading.excepthook(threading.ExceptHookArgs(told))


class _Poller:
    """`epoll` where it exists, else `poll`: both level-triggered."""

    def __init__(self) -> None:
        self.is_epoll = hasattr(select, "epoll")
        self._poller: Any = select.epoll() if self.is_epoll else select.poll()
        self.poll: Callable[[float | None], list[tuple[int, int]]] = self._poller.poll if self.is_epoll else self._poll
        """The descriptors where something has happened within so many seconds, each with what."""

    def add(self, fd: int) -> None:
        self._poller.register(fd, select.POLLIN)

    def remove(self, fd: int) -> None:
        self._poller.unregister(fd)

    def set_writes(self, fd: int, on: bool) -> None:
        self._poller.modify(fd, select.POLLIN | (select.POLLOUT if on else 0))

    def _poll(self, timeout: float | None) -> list[tuple[int, int]]:
        return self._poller.poll(None if timeout is None else timeout * 1000)  # in milliseconds, unlike `epoll`

    def close(self) -> None:
        if self.is_epoll:
            self._poller.close()
