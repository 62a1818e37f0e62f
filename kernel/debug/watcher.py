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

from ...runtime.ranks.stacks import is_ours
from .breakpoints import Breakpoint
from .conditions import Condition

Stop = Callable[[FrameType, str], None]
"""Called with the frame and why it stops."""

_monitoring: Any = getattr(sys, "monitoring", None)
"""None before Python 3.12."""

_TOOL = 3
"""An identity of `sys.monitoring` that is for anybody; the debugger's own is debugpy's."""

_NAME = "meshbook"


_Points = tuple[tuple[Breakpoint, Condition | None], ...]
"""Breakpoints of one line with their conditions."""


class _Plan(NamedTuple):
    """What is armed in a code object, which it keeps: it is found by its identity, as its hash takes a microsecond."""

    code: CodeType
    lines: dict[int, _Points]


class Watcher:
    """The armed breakpoints of one process."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._armed: tuple[Breakpoint, ...] = ()
        self._plans: dict[int, _Plan] = {}
        self._hits: dict[int, int] = {}

    @property
    def is_armed(self) -> bool:
        return bool(self._armed)

    def arm(self, breakpoints: Sequence[Breakpoint]) -> None:
        """These, and no others, from now on; from any thread. (3.11: the main thread has to `take_up` them.)"""
        self._armed = tuple(each for each in breakpoints if each.is_on)
        self._plans = {}
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
        sys.settrace(self._on_call)
        while frame is not None:
            if self._plan(frame.f_code):
                frame.f_trace = self._on_line
            frame = frame.f_back

    def resume(self, frame: FrameType) -> Any:
        """The same when a debugger that traced has let go; the trace function of its frame."""
        self.take_up(frame)
        return frame.f_trace if _monitoring is None and self._armed and self._plan(frame.f_code) else None

    def _on_call(self, frame: FrameType, event: str, arg: object) -> Any:
        return self._on_line if self._plan(frame.f_code) else None

    def _on_line(self, frame: FrameType, event: str, arg: object) -> Any:
        points = self._plan(frame.f_code).get(frame.f_lineno) if event == "line" else None
        if points is not None and self._look(points, frame):
            return frame.f_trace  # of the debugger, where it steps
        return self._on_line

    # Python 3.12 and later

    def _monitor(self) -> None:
        events = _monitoring.events
        if _monitoring.get_tool(_TOOL) is None:
            _monitoring.use_tool_id(_TOOL, _NAME)
        _monitoring.register_callback(_TOOL, events.PY_START, self._on_start)
        _monitoring.register_callback(_TOOL, events.PY_RESUME, self._on_start)
        _monitoring.register_callback(_TOOL, events.LINE, self._on_monitored_line)
        _monitoring.set_events(_TOOL, events.PY_START | events.PY_RESUME if self._armed else 0)
        _monitoring.restart_events()
        for code in _running():
            self._on_start(code, 0)

    def _on_start(self, code: CodeType, offset: int) -> Any:
        _monitoring.set_local_events(_TOOL, code, _monitoring.events.LINE if self._plan(code) else 0)
        return _monitoring.DISABLE  # each code object is looked at once

    def _on_monitored_line(self, code: CodeType, line: int) -> Any:
        plan = self._plans.get(id(code))
        points = (plan.lines if plan is not None else self._plan(code)).get(line)
        if points is None:
            return _monitoring.DISABLE
        self._look(points, sys._getframe(1))  # pyright: ignore[reportPrivateUsage] - documented all the same
        return None

    # Both

    def _plan(self, code: CodeType) -> dict[int, _Points]:
        """The lines of a code object that have breakpoints."""
        plan = self._plans.get(id(code))
        if plan is None:
            plan = self._plans[id(code)] = _Plan(code, self._lines_of(code))
        return plan.lines

    def _lines_of(self, code: CodeType) -> dict[int, _Points]:
        lines: dict[int, _Points] = {}
        for each in self._armed if not is_ours(code.co_filename) else ():
            for line in each.lines_in(code):
                lines[line] = (
                    *lines.get(line, ()),
                    (each, Condition(each.condition, code) if each.condition else None),
                )
        return lines

    def _look(self, points: _Points, frame: FrameType) -> bool:
        """Stop where there is reason to; whether there was."""
        for point, condition in points:
            try:
                if condition is not None and not condition.holds(frame):
                    continue
                why = f"breakpoint {point.number}: {point.text}"
            except Exception as error:  # noqa: BLE001 - a condition that fails is told where it stands, not passed over
                why = f"breakpoint {point.number}: its condition fails: {type(error).__name__}: {error}"
            self._hits[point.number] = self._hits.get(point.number, 0) + 1
            self._stop(frame, why)
            return True
        return False


def _running() -> Iterator[CodeType]:
    """The code of all frames of all threads."""
    own = threading.get_ident()
    for thread, frame in sys._current_frames().items():  # pyright: ignore[reportPrivateUsage]
        each: FrameType | None = frame if thread != own else None
        while each is not None:
            yield each.f_code
            each = each.f_back
