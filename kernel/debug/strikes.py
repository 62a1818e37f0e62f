"""Stops a thread other than the main one at its next line: the main one hears signals (`runtime.ranks.visits`).

From Python 3.12 on by `sys.monitoring`: the lines of what runs there now, and whatever it calls next. On 3.11 by a
trace function that is set from outside, as debugpy does it in C: CPython has `_PyEval_SetTrace` for any thread, and
keeps the threads of a process in a list. A thread that sleeps or waits has no next line: it is looked at instead.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

Stop = Callable[[FrameType], None]

_monitoring: Any = getattr(sys, "monitoring", None)
_TOOL = 4
"""The other identity of `sys.monitoring` that is for anybody (`watcher` has the first)."""
_NAME = "meshbook strikes"


class Strikes:
    """Strikes one thread at a time. `stop` is called on that thread, with the frame that it is in."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._wanted = 0
        self._codes: list[CodeType] = []
        self._lock = threading.Lock()  # who strikes, who takes it back and who is struck are three threads

    def strike(self, ident: int) -> None:
        """Stop this thread when it runs its next line."""
        self.cancel()
        self._wanted = ident
        if _monitoring is not None:
            self._monitor(ident)
        else:
            _set_trace(ident, self._trampoline)

    def cancel(self) -> bool:
        """Let it go on after all; whether it had not been stopped yet."""
        with self._lock:
            wanted, self._wanted = self._wanted, 0
            if wanted and _monitoring is not None:
                self._unmonitor()
            elif wanted:
                _set_trace(wanted, None)
        return wanted != 0

    def _hit(self, frame: FrameType) -> None:
        if self._wanted == threading.get_ident() and self.cancel():
            self._stop(frame)

    # Python 3.12 and later

    def _monitor(self, ident: int) -> None:
        events = _monitoring.events
        _monitoring.use_tool_id(_TOOL, _NAME)
        for event in self._events():
            _monitoring.register_callback(_TOOL, event, self._on_event)
        frame = sys._current_frames().get(ident)  # pyright: ignore[reportPrivateUsage] - documented all the same
        while frame is not None:
            self._codes.append(frame.f_code)
            frame = frame.f_back
        for code in self._codes:
            _monitoring.set_local_events(_TOOL, code, events.LINE | events.JUMP)
        _monitoring.set_events(_TOOL, events.PY_START | events.PY_RESUME)

    def _unmonitor(self) -> None:
        # Before 3.14 nothing of this goes with the identity.
        _monitoring.set_events(_TOOL, 0)
        for code in self._codes:
            _monitoring.set_local_events(_TOOL, code, 0)
        for event in self._events():
            _monitoring.register_callback(_TOOL, event, None)
        self._codes.clear()
        _monitoring.free_tool_id(_TOOL)

    def _events(self) -> tuple[int, ...]:
        events = _monitoring.events
        return events.PY_START, events.PY_RESUME, events.LINE, events.JUMP  # `while True: pass` begins no line

    def _on_event(self, code: CodeType, *_: int) -> None:
        self._hit(sys._getframe(1))  # pyright: ignore[reportPrivateUsage] - as above

    # Python 3.11

    @property
    def _trampoline(self) -> Any:
        return _kept.setdefault(id(self), _Trace(self._on_trace))

    def _on_trace(self, _: object, frame: int, event: int, argument: object) -> int:
        sys.settrace(None)  # this thread is traced no more, unless the debugger steps
        self._hit(sys._getframe(1))  # pyright: ignore[reportPrivateUsage] - as above
        return 0


_Trace = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
_kept: dict[int, Any] = {}  # C calls them: they must live as long as the process


def _set_trace(ident: int, trace: Any) -> None:
    """`sys.settrace` for another thread; nothing where it has ended. Under the GIL all of it, as `PyDLL` does."""
    api = ctypes.pythonapi
    for state in _thread_states():
        if _ident_of(state) == ident:
            function = ctypes.cast(trace, ctypes.c_void_p) if trace is not None else None
            api._PyEval_SetTrace(ctypes.c_void_p(state), function, None)


def _thread_states() -> Iterator[int]:
    """The addresses of the `PyThreadState`s of this process."""
    api = ctypes.pythonapi
    for name in ("PyInterpreterState_Get", "PyInterpreterState_ThreadHead", "PyThreadState_Next"):
        getattr(api, name).restype = ctypes.c_void_p
    state = api.PyInterpreterState_ThreadHead(ctypes.c_void_p(api.PyInterpreterState_Get()))
    while state:
        yield state
        state = api.PyThreadState_Next(ctypes.c_void_p(state))


_WORDS = 40
"""Machine words of a `PyThreadState` that are looked through: in 3.11 the identity is among the first 30."""


def _ident_of(state: int) -> int:
    return ctypes.cast(state, ctypes.POINTER(ctypes.c_size_t))[_offset()]


@functools.cache
def _offset() -> int:
    """Which word of a `PyThreadState` is the identity of its thread: the one that is ours in the state of our own."""
    api = ctypes.pythonapi
    api.PyThreadState_Get.restype = ctypes.c_void_p
    words = ctypes.cast(api.PyThreadState_Get(), ctypes.POINTER(ctypes.c_size_t))
    return next(i for i in range(_WORDS) if words[i] == threading.get_ident())
