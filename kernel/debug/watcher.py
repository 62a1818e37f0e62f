"""Stops at breakpoints that were armed from outside, also in code that runs already, at little cost elsewhere.

From Python 3.12 on by `sys.monitoring`: only lines of code objects that have a breakpoint are looked at. On 3.11 by a
trace function of the main thread, which every call of a Python function pays for while a breakpoint is armed.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple

from ...runtime.ranks.users import is_users
from ...runtime.system.ours import is_ours
from .breakpoints import Breakpoint
from .conditions import Condition, Test
from .functions import has_user, is_for_us, is_meant, is_theirs

Stop = Callable[[FrameType, str], None]
"""Called with the frame and why it stops."""

Trace = Callable[[FrameType, str, object], Any]

_monitoring: Any = getattr(sys, "monitoring", None)
"""None before Python 3.12."""

_TOOL = 3
"""An identity of `sys.monitoring` that is for anybody; the debugger's own is debugpy's."""

_NAME = "meshbook"

_MOST_PLANS = 1 << 15
"""Pieces of code that are known, with or without a breakpoint: `eval` of a text makes another one each time."""

_Points = tuple[tuple[Breakpoint, Condition | None], ...]
"""Breakpoints of one line with their conditions."""


class _Plan(NamedTuple):
    """What is armed in a code object, which it keeps: it is found by its identity, as its hash takes a microsecond."""

    code: CodeType
    lines: dict[int, _Points]
    trace: Trace
    """What looks at its lines on Python 3.11."""


class _Hot(NamedTuple):
    """A line with one condition, made ready: what is looked at most often is to cost least."""

    code: CodeType
    names: dict[str, Any] | None
    """The globals that `test` was made for; None where it names none."""
    test: Test
    point: Breakpoint


class Watcher:
    """The armed breakpoints of one process."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._armed: tuple[Breakpoint, ...] = ()
        self._plans: dict[int, _Plan] = {}
        self._hot: dict[int, _Hot] = {}  # by line; of several pieces of code, the one that ran it last
        self._hits: dict[int, int] = {}
        self._of_users: dict[str, bool] = {}  # by name of a function: whether the user's code has one

    @property
    def is_armed(self) -> bool:
        return bool(self._armed)

    def arm(self, breakpoints: Sequence[Breakpoint]) -> None:
        """These, and no others, from now on; from any thread. (3.11: the main thread has to `take_up` them.)"""
        self._armed = tuple(each for each in breakpoints if each.is_on)
        self._plans = {}
        self._hot = {}
        self._of_users = {}
        if _monitoring is not None:
            self._monitor()

    def hits(self) -> dict[int, int]:
        """How often each breakpoint was hit, by its number."""
        return dict(self._hits)

    # Python 3.11

    def take_up(self, frame: FrameType | None = None) -> None:
        """On the main thread: trace what is called from now on, and the frames that run, from `frame` outwards."""
        if _monitoring is not None or not self._armed:
            return
        sys.settrace(self.on_call)
        while frame is not None:
            plan = self._plan(frame.f_code)
            if plan.lines:
                frame.f_trace = plan.trace
            frame = frame.f_back

    def resume(self, frame: FrameType) -> Any:
        """The same when a debugger that traced has let go; the trace function of its frame."""
        self.take_up(frame)
        is_ours = _monitoring is None and self._armed and self._plan(frame.f_code).lines
        return frame.f_trace if is_ours else None

    def on_call(self, frame: FrameType, event: str, arg: object) -> Any:
        """What traces a function that is called: None where nothing of it is armed, or nobody needs to trace."""
        if _monitoring is not None or not self._armed:
            return None
        plan = self._plan(frame.f_code)
        return plan.trace if plan.lines else None

    def _tracer(self, lines: dict[int, _Points]) -> Trace:
        find, look = lines.get, self._look

        def on_line(frame: FrameType, event: str, arg: object) -> Any:
            # As below: every line of the function pays for this.
            points = find(frame.f_lineno)
            if points is not None and event == "line" and look(points, frame):
                return frame.f_trace  # of the debugger, where it steps
            return on_line

        return on_line

    # Python 3.12 and later

    def _monitor(self) -> None:
        events = _monitoring.events
        if _monitoring.get_tool(_TOOL) is None:
            _monitoring.use_tool_id(_TOOL, _NAME)
        _monitoring.register_callback(_TOOL, events.PY_START, self._on_start)
        _monitoring.register_callback(_TOOL, events.PY_RESUME, self._on_start)
        _monitoring.register_callback(_TOOL, events.LINE, self._on_monitored_line())
        _monitoring.set_events(_TOOL, events.PY_START | events.PY_RESUME if self._armed else 0)
        _monitoring.restart_events()
        for code in _running():
            self._on_start(code, 0)

    def _on_start(self, code: CodeType, offset: int) -> Any:
        _monitoring.set_local_events(_TOOL, code, _monitoring.events.LINE if self._plan(code).lines else 0)
        return _monitoring.DISABLE  # each code object is looked at once

    def _on_monitored_line(self) -> Callable[[CodeType, int], Any]:
        find, look, stop = self._hot.get, self._look_at, self._stop_at
        getframe = sys._getframe  # pyright: ignore[reportPrivateUsage] - documented all the same

        def on_line(code: CodeType, line: int) -> Any:
            # Each step here is paid for at every turn of a loop: no method is called, and no object made.
            hot = find(line)
            frame = getframe(1)
            if hot is None or hot[0] is not code or not (hot[1] is None or hot[1] is frame.f_globals):
                return look(code, line, frame)
            try:
                if not hot[2](frame.f_locals):
                    return None
            except Exception as error:  # noqa: BLE001 - a condition that fails is told where it stands, not passed over
                stop(hot[3], frame, error)
            else:
                stop(hot[3], frame)
            return None

        return on_line

    def _look_at(self, code: CodeType, line: int, frame: FrameType) -> Any:
        ready = self._hot  # before the plan: what was armed meanwhile has a new one
        points = self._plan(code).lines.get(line)
        if points is None:
            return _monitoring.DISABLE
        (point, condition), *others = points
        if condition is not None and not others:
            names = frame.f_globals if condition.names_globals else None
            ready[line] = _Hot(code, names, condition.test_in(frame), point)
        self._look(points, frame)
        return None

    # Both

    def _plan(self, code: CodeType) -> _Plan:
        plans = self._plans  # before what is armed is read: it may be armed anew meanwhile, on another thread
        plan = plans.get(id(code))
        if plan is None:
            if len(plans) >= _MOST_PLANS:
                plans.clear()
            lines = self._lines_of(code)
            plan = plans[id(code)] = _Plan(code, lines, self._tracer(lines))
        return plan

    def _lines_of(self, code: CodeType) -> dict[int, _Points]:
        lines: dict[int, _Points] = {}
        for each in self._armed if not is_ours(code.co_filename) else ():
            for line in each.lines_in(code, is_meant):
                if each.function and is_users(code.co_filename):
                    self._of_users[each.function] = True
                lines[line] = (
                    *lines.get(line, ()),
                    (each, Condition(each.condition, code) if each.condition else None),
                )
        return lines

    def _look(self, points: _Points, frame: FrameType) -> bool:
        """Stop where there is reason to; whether there was."""
        for point, condition in points:
            try:
                if condition is not None and not condition.test_in(frame)(frame.f_locals):
                    continue
            except Exception as error:  # noqa: BLE001 - as above
                has_stopped = self._stop_at(point, frame, error)
            else:
                has_stopped = self._stop_at(point, frame)
            if has_stopped:
                return True
        return False

    def _stop_at(self, point: Breakpoint, frame: FrameType, error: Exception | None = None) -> bool:
        if point.function and not self._is_meant(point.function, frame):
            return False
        self._hits[point.number] = self._hits.get(point.number, 0) + 1
        why = point.text if error is None else f"its condition fails: {type(error).__name__}: {error}"
        if isinstance(error, NameError) and error.name == "rank":
            why += f" (ranks stand before the condition: `%mesh break {point.place} 1`)"
        self._stop(frame, f"breakpoint {point.number}: {why}")
        return True

    def _is_meant(self, function: str, frame: FrameType) -> bool:
        """A name alone may be that of many functions: the one that the user's names hold, else any of the user's own.

        One of a library is meant where the user's code has none, and never in what we call ourselves.
        """
        is_own = is_users(frame.f_code.co_filename)
        if not is_own and is_for_us(frame):
            return False
        if "." in function:
            return True
        is_it = is_theirs(function, frame.f_code)
        if is_it is not None or is_own:
            return is_it is not False
        if function not in self._of_users:
            self._of_users[function] = has_user(function)
        return not self._of_users[function]


def _running() -> Iterator[CodeType]:
    """The code of all frames of all threads."""
    own = threading.get_ident()
    for thread, frame in sys._current_frames().items():  # pyright: ignore[reportPrivateUsage]
        each: FrameType | None = frame if thread != own else None
        while each is not None:
            yield each.f_code
            each = each.f_back
