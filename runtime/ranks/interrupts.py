"""Interrupting the call that a rank runs, and only that one.

An interrupt asked for call 7 must not hit call 8, nor the runtime's own code between them: the handler compares the
call it was meant for with the one that runs, and holds back while the runtime works, or an import that cannot be done
twice.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType
from typing import Any

from ..system.forks import let_go_in_child
from ..wire import sigint
from . import offspring
from .loading import after_loading, is_loading

_PAUSES = (0.001, 0.002, 0.004, 0.008)
"""Seconds between two strikes. Code in C that looks for no signals is left to itself then."""

_ENDING = 0.02
_NUM_ENDING = 25
"""Seconds between two strikes, and how many, while what the call has started and waits for ends: `os.system` drops all
signals until then."""

_LOADING = 0.02
"""Seconds after which one looks again whether what can be loaded once only has been loaded."""

_LONG = 30.0
"""Seconds after which it is no import any more, but a program that was compiled, and runs as it is imported."""


class Interrupts:
    """Decides, when SIGINT arrives on the main thread, whether user code is to be interrupted."""

    def __init__(self) -> None:
        self.running = 0
        """The call whose user code runs now; 0 when none does."""
        self._latest = 0
        self._began = 0.0  # when the call did that runs
        self._kin: frozenset[Any] = frozenset()  # as it began
        self._early: set[int] = set()  # calls that were interrupted before they began
        self._lock = threading.Lock()  # a call must not begin or end while it is decided whether it runs
        self._wanted = 0
        self._raised = 0  # the call that was interrupted last
        self._put_off = 0  # the call that is struck again and again, until its import has come to its end
        self._put_off_since = 0.0
        self._is_between = False
        self._shields = 0
        self._held: BaseException | None = None  # what is raised where user code goes on
        self._main = threading.main_thread().ident
        self._is_installed = False
        self._at_begin, self._at_end = self._begin, self._end  # made here: to bind a method takes time at each call

    def install(self) -> None:
        """On the main thread. A handler of the user's stays for the call that has set it, as in any notebook."""
        self._is_installed = True
        sigint.let(self._on_signal)
        let_go_in_child(self)

    def let_go(self) -> None:
        """In a fork of the rank, which is a program like others: Ctrl-C is what it is in any."""
        self._wanted = 0
        if sigint.handler() == self._on_signal:
            sigint.let(signal.default_int_handler)

    def request(self, call: int) -> int:
        """From the control thread: interrupt `call` (0: whichever runs). Returns the call that runs, 0 for none.

        A call that is still on its way, or waits behind another one, is interrupted when it begins.
        """
        with self._lock:
            running, began = self.running, offspring.Moment(self._began, self._kin)
            is_early = call > self._latest
            is_meant = running and call in (0, running)
            if is_early:
                self._early.add(call)
            elif is_meant:
                self._strike(running)
        if is_early:
            self._make_way(call)
            return call
        if is_meant:
            struck = time.monotonic()
            self._insist(running, self._is_running)
            if offspring.are_there_any():
                with suppress(RuntimeError):  # no thread is left
                    _thread.start_new_thread(self._reach_out, (running, began, struck))
        return running

    def _reach_out(self, call: int, began: offspring.Moment, struck: float) -> None:
        """Interrupt what the call has started, and once more the call, where it has not heard of it yet."""
        if offspring.interrupt_those_of(began, struck):
            for _ in range(_NUM_ENDING):
                time.sleep(_ENDING)
                with self._lock:
                    if self._wanted != call or not self._is_running(call):
                        return
                    self._strike(call)

    def heard(self) -> None:
        """On the main thread: a handler of the user's has heard of it, and does with it what it likes, once."""
        self._wanted = 0
        self._raised = self.running

    def catch_up(self) -> None:
        """Strike the main thread, on which this is called, with what was asked for while it heard no signals."""
        with self._lock:  # a strike that is half done comes by itself
            is_owed = self._wanted and self._wanted == self.running and threading.get_ident() == self._main
        if is_owed:
            signal.raise_signal(signal.SIGINT)  # the handler may be the user's

    def strike_again(self) -> bool:
        """On the main thread: what was raised there last is lost, so it is to come again. Whether it will."""
        try:
            _thread.start_new_thread(self._strike_anew, (self._raised,))
        except RuntimeError:  # no thread is left
            return False
        return True

    def _strike_anew(self, call: int) -> None:
        time.sleep(_PAUSES[0])  # the main thread is to be out of where it is lost
        with self._lock:
            if not self._is_stoppable(call):
                return
            self._strike(call)
        self._insist(call, self._is_stoppable)

    def _strike(self, running: int) -> None:
        self._wanted = running
        assert self._main is not None
        signal.pthread_kill(self._main, signal.SIGINT)

    def _insist(self, call: int, is_meant: Callable[[int], bool]) -> None:
        """Strike again while the handler has not run.

        A signal that comes between Python's last look for signals and a system call does not end the call: a cell
        `time.sleep(60)` would sleep on. That is no rare thing, since this thread takes the GIL just there.
        """
        for seconds in _PAUSES:
            time.sleep(seconds)
            with self._lock:
                if self._wanted != call or not is_meant(call):
                    return
                self._strike(call)

    def _make_way(self, call: int) -> None:
        """Strike what goes on between calls, if that keeps this one waiting."""
        for seconds in _PAUSES:
            if not self._is_kept_waiting(call):
                return
            time.sleep(seconds)
        with self._lock:
            if self._is_kept_waiting(call):
                self._strike(call)
        self._insist(call, self._is_kept_waiting)

    def _is_running(self, call: int) -> bool:
        return self.running == call

    def _is_kept_waiting(self, call: int) -> bool:
        return self._is_between and call > self._latest

    def _is_stoppable(self, call: int) -> bool:
        return self._is_running(call) or self._is_kept_waiting(call)

    @contextmanager
    def between(self) -> Generator[None]:
        """No call runs, but inside is what former ones have left: it goes on until the next call comes."""
        self._shields, self._is_between = 0, True
        try:
            yield
        finally:
            self._shields, self._is_between, self._held = 1, False, None

    def open_for(self, call: int, *, is_careful: bool = False) -> AbstractContextManager[None]:
        """User code of `call` runs inside; an interrupt of it raises `KeyboardInterrupt` there.

        One that is careful says itself where user code runs (`opened`): an interrupt before it waits for it.
        """
        return _Open(self._at_begin, self._at_end, call, is_careful)

    def _begin(self, call: int, is_careful: bool) -> None:
        if self._is_installed and sigint.handler() != self._on_signal:
            self.install()  # `pdb.run` and others leave theirs behind
        with self._lock:
            self._shields = int(is_careful)
            self._held = KeyboardInterrupt() if call in self._early else None
            self._early = {each for each in self._early if each > call}
            self.running = self._latest = call
            self._began, self._kin = time.monotonic(), offspring.of_multiprocessing()
        if not is_careful:
            self._let_go()

    def _end(self) -> None:
        with self._lock:
            self.running = self._put_off = 0
            self._kin = frozenset()
            held, self._held = self._held, None
        if held is not None:
            _drop(held)

    def hold(self, error: BaseException) -> None:
        """On the main thread, while the runtime works: let the running call raise this where user code goes on.

        It is only told where no call runs, or user code does not go on.
        """
        if self.running and self._held is None:
            self._held = error
        else:
            _drop(error)

    @property
    def has_struck(self) -> bool:
        """Was the running call interrupted, and goes on: in an `except`, a `finally`, after a handler of its own?"""
        return bool(self.running) and self._raised == self.running

    @property
    def is_open(self) -> bool:
        """Does user code run, and not the runtime's own?"""
        return bool(self.running) and not self._shields

    def opened(self) -> AbstractContextManager[None]:
        """Inside a call that is careful, user code runs inside of this."""
        return _Opened(self._open, self._close)

    def _open(self) -> None:
        with self._lock:
            self._shields = 0
        self._let_go()

    def _close(self) -> None:
        self._shields = 1

    @contextmanager
    def shield(self) -> Generator[None]:
        """The runtime works inside, called from user code: an interrupt waits until it is done."""
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        if not self._shields:
            self._let_go()

    def _let_go(self) -> None:
        """Raise what was held back."""
        held, self._held = self._held, None
        if held is not None:
            self._raised = self.running
            raise held

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        wanted, self._wanted = self._wanted, 0
        is_meant = self._is_kept_waiting(wanted) or (self.running and wanted in (0, self.running))
        if not is_meant:
            return  # it was meant for a call that has ended meanwhile
        if self._shields:
            self._held = KeyboardInterrupt()
        elif is_loading(frame) and (not self.running or self._strikes_later(self.running)):
            if running := self.running:  # else what former calls have left imports it: a cell can wait for that
                after_loading(frame, lambda: self._on_loaded(running))
        else:
            self._put_off = 0
            self._raised = wanted or self.running
            raise KeyboardInterrupt

    def _on_loaded(self, call: int) -> None:
        """At once: the next line may wait in C, where no strike is heard."""
        if self._put_off == call:
            self._wanted = call
            self._on_signal(signal.SIGINT, None)

    def _strikes_later(self, running: int) -> bool:
        """Strike again until the import has come to its end; whether that can be."""
        if self._put_off == running:
            return time.monotonic() - self._put_off_since < _LONG
        self._put_off, self._put_off_since = running, time.monotonic()
        try:
            _thread.start_new_thread(self._strike_on, (running,))
        except RuntimeError:  # no thread is left
            return False
        return True

    def _strike_on(self, running: int) -> None:
        while True:
            time.sleep(_LOADING)
            with self._lock:
                if self._put_off != running or self.running != running:
                    return
                self._strike(running)


def _drop(error: BaseException) -> None:
    """Tell what nobody hears, in the cell that ran last. An interrupt that came too late is of no interest."""
    if not isinstance(error, KeyboardInterrupt):
        error.add_note("no cell ran that it could stop")
        sys.stderr.write("".join(traceback.format_exception_only(error)))  # `Streams` may be entered again by a handler
        sys.stderr.flush()


class _Open:
    """Around user code. Not a generator: one that is interrupted in its last line is finished later, by whoever."""

    __slots__ = ("_begin", "_call", "_end", "_is_careful")

    def __init__(
        self, begin: Callable[[int, bool], object], end: Callable[[], object], call: int, is_careful: bool
    ) -> None:
        self._begin, self._end = begin, end
        self._call, self._is_careful = call, is_careful

    def __enter__(self) -> None:
        self._begin(self._call, self._is_careful)

    def __exit__(self, *_: object) -> None:
        self._end()


class _Opened:
    """The same within a call that is careful."""

    __slots__ = ("_close", "_open")

    def __init__(self, open: Callable[[], object], close: Callable[[], object]) -> None:
        self._open, self._close = open, close

    def __enter__(self) -> None:
        self._open()

    def __exit__(self, *_: object) -> None:
        self._close()
