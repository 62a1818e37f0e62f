"""The live dashboard of a mesh: an anywidget that is told, in few bytes, what has changed."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import traitlets
from IPython.core.error import UsageError

from ..kernel.dashboard import curves, frames
from ..kernel.dashboard.facts import STATES, RankFacts, counts
from ..kernel.dashboard.pulse import Pulse, Source
from ..kernel.dashboard.sentence import Sentence, sentence
from ..runtime.controller.meters import Mark, Meters, Series
from ..runtime.errors import MeshbookError
from .base import STATIC, LiveWidget, script
from .dashboard_panel import panel
from .dashboard_twin import Twin
from .hands import Deed, Hands

KEY_FRAME = 40
"""Every so many frames all records are sent, whatever a view may have missed."""

CURVES_EVERY = 1.0
"""Seconds between two drawings of the curves."""

STILL_EVERY = 2.0
"""Seconds after which a view hears that there is nothing new: it says so when it hears nothing at all."""

MOST_LINES = 8
"""Selected ranks whose curves are drawn one by one."""

EXPIRY = 5.0
"""Seconds after which a click is not obeyed any more: it was held up, and what it was meant for has changed."""


class Dashboard(LiveWidget):
    """A mesh, live. `start` makes it look; it ends by itself when its source does."""

    _esm = script("cells.js", "home.js", "dashboard.js")
    _css = STATIC / "dashboard.css"
    title = traitlets.Unicode().tag(sync=True)
    axes = traitlets.List(traitlets.Unicode()).tag(sync=True)
    sizes = traitlets.List(traitlets.Int()).tag(sync=True)
    states = traitlets.List(traitlets.Unicode(), list(STATES)).tag(sync=True)
    cols = traitlets.Int(0).tag(sync=True)
    note = traitlets.Unicode().tag(sync=True)

    def __init__(
        self,
        title: str,
        axes: Mapping[str, int],
        source: Source,
        meters: Meters,
        hands: Hands,
        last_line: Callable[[int], str] = lambda rank: "",
        note: str = "",
    ) -> None:
        self.pulse = Pulse(source, self)
        self.selected: list[int] = []
        self.metric = ""
        self.frame = b""
        """The records that views have."""
        self._source = source
        self._meters = meters
        self._hands = hands
        self._last_line = last_line
        self._count = 0
        self._bands: dict[str, curves.Band] = {}
        self._read: dict[Series, Mark] = {}
        self._drawn = (0.0, -1, "", ())
        self._said: tuple[object, ...] = ()
        self._panel: object = None
        self._told = 0.0
        self._wants_key = threading.Event()
        self._end: dict[str, str] = {}
        self._head: dict[str, Any] = {}
        super().__init__(title=title, axes=list(axes), sizes=list(axes.values()), note=note)

    def twin(self) -> dict[str, str]:
        seen = f"as it was at {time.strftime('%H:%M:%S')}"
        return self._end or self._twin(self._source.facts, time.monotonic(), seen).bundle()

    def _twin(self, facts: Sequence[RankFacts], now: float, *notes: str) -> Twin:
        axes = dict(zip(self.axes, self.sizes, strict=True))
        return Twin(self.title, axes, facts, self._sentence(facts, now), now, [*notes, *self._last_values()])

    def _sentence(self, facts: Sequence[RankFacts], now: float) -> Sentence:
        return sentence(facts, now, self._source.finding, self._source.late)

    def _last_values(self) -> list[str]:
        lines: list[str] = []
        for name in self._meters.names():
            last = self._meters.last(name)
            values = sorted(value for _, value, _ in last.values() if value == value)
            step = max((step for step, *_ in last.values()), default=0)
            if values:
                lines.append(f"{name} at step {step:g}: {values[0]:.6g} to {values[-1]:.6g} on {len(last)} ranks")
        return lines

    # What a view says; on the kernel's threads.

    def on_message(self, message: Mapping[str, Any], buffers: Sequence[memoryview]) -> None:
        kind, view = message.get("kind"), str(message.get("view", ""))
        if self._end:
            if kind == "hello":
                self._tell_end()
        elif kind == "hello":
            self._wants_key.set()
            self.pulse.seen(view)
            self.pulse.wake()
        elif kind == "beat":
            self.pulse.seen(view)
        elif kind == "bye":
            self.pulse.unseen(view)
        elif kind == "metric":
            self.metric = self._source.metric = str(message.get("name", ""))
            self.pulse.wake()
        elif kind == "select":
            self.selected = self._ranks(message)
            self.pulse.wake()
        elif kind == "act":
            self._act(message)

    def _ranks(self, message: Mapping[str, Any]) -> list[int]:
        known = range(len(self._source.facts))
        return [rank for rank in message.get("ranks", []) if isinstance(rank, int) and rank in known]

    def _act(self, message: Mapping[str, Any]) -> None:
        """Obey a click on a thread of its own: a restart takes seconds, and the next click must be heard."""
        number, action, ranks = message.get("id"), str(message.get("action", "")), self._ranks(message)
        runs = [run for run in message.get("runs", []) if isinstance(run, int)]
        late = time.time() - float(message.get("at", 0.0))  # by the controller's own clock: the script knows it from us
        if late > EXPIRY or not ranks:
            why = f"it came {late:.1f} s late" if late > EXPIRY else "no rank is selected"
            self.tell("ack", id=number, ok=False, done=True, text=f"{action}: {why}")
            return
        self.tell("ack", id=number, ok=True, done=False, text=f"{action} …")

        def work() -> None:
            ok, deed = True, Deed("")
            try:
                deed = self._hands.do(action, ranks, runs)
            except (MeshbookError, UsageError, ValueError) as error:
                ok, deed = False, Deed(str(error))
            finally:
                self.tell("ack", id=number, ok=ok, done=True, text=deed.text, detail=deed.detail, next=deed.next)
                self.pulse.wake()

        threading.Thread(target=work, name="meshbook-click", daemon=True).start()

    # What the pulse sees; on its thread.

    def on_look(self, facts: Sequence[RankFacts], now: float) -> bool:
        self._take_shape(facts)
        is_key = self._wants_key.is_set() or self._count % KEY_FRAME == 0
        self._wants_key.clear()
        new = frames.pack(facts)
        changes = None if is_key else frames.delta(self.frame, new)
        said = self._sentence(facts, now)
        names = self._meters.names()
        runs = sorted({each.run for each in facts if each.run})
        head = (said, names, runs)
        is_news = new != self.frame or head != self._said
        if is_news or is_key:
            self._told = now
            self._send_frame(new if changes is None else changes, changes is None, said, counts(facts), names, runs)
        elif now - self._told >= STILL_EVERY:
            self._told = now
            self.tell("still")
        self.frame, self._said = new, head
        self._count += 1
        return any([self._draw_curves(names, now, is_key), self._fill_panel(facts, now, is_key), is_news])

    def on_end(self, facts: Sequence[RankFacts], now: float) -> None:
        at = time.strftime("%H:%M:%S")
        self._end = self._twin(facts, now, f"the mesh was taken down; this is its last state, seen at {at}").bundle()
        self._tell_end()
        self._publish(self._end)

    def _tell_end(self) -> None:
        """The comm stays open: a page that was loaded again knows no display to update, and still has a view."""
        if self._head:
            self.tell("frame", [self.frame], m="full", **self._head)
        self.tell("end", text="the mesh was taken down")

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return (dict(self._end), {}) if self._end else super()._repr_mimebundle_(**options)

    def _take_shape(self, facts: Sequence[RankFacts]) -> None:
        """The mesh was resized: views lay out another grid, and nothing that was sent before holds."""
        axes = self._source.axes
        if (list(axes), list(axes.values())) != (self.axes, self.sizes) and math.prod(axes.values()) == len(facts):
            self.axes, self.sizes = list(axes), list(axes.values())
            self.selected, self.frame, self._bands, self._read = [], b"", {}, {}
            self._wants_key.set()

    def _send_frame(
        self, data: bytes, is_full: bool, said: Sentence, states: Mapping[str, int], names: list[str], runs: list[int]
    ) -> None:
        mode = "full" if is_full else "delta"
        told = {"lead": said.lead, "rest": said.rest, "tone": said.tone, "counts": states, "names": names, "runs": runs}
        self._head = {"i": self._count, "t": time.time(), **told}
        self.tell("frame", [data], m=mode, **self._head)

    def _draw_curves(self, names: Sequence[str], now: float, is_key: bool) -> bool:
        """Send the curve of one metric if there is something new in it."""
        name = self.metric if self.metric in names else next(iter(names), "")
        when, count, former, ranks = self._drawn
        chosen = tuple(self.selected[:MOST_LINES])
        is_new = (name, chosen) != (former, ranks) or is_key
        if not name or not (is_new or (self._meters.count != count and now - when >= CURVES_EVERY)):
            return False
        self._drawn = now, self._meters.count, name, chosen
        for each, rank, points in self._meters.fresh(self._read):
            self._bands.setdefault(each, curves.Band()).extend(points, rank)
        band = self._bands.get(name, curves.Band())  # none is there where all that reported it went in a resize
        lines = [curves.pack_line(self._meters.points(name, rank)) for rank in chosen]
        self.tell("curves", [curves.pack_rows(band.rows()), *lines], name=name, ranks=list(chosen))
        return True

    def _fill_panel(self, facts: Sequence[RankFacts], now: float, is_key: bool) -> bool:
        ranks = [rank for rank in self.selected if rank < len(facts)]
        if not ranks:
            return False
        axes = dict(zip(self.axes, self.sizes, strict=True))
        line = self._last_line(ranks[0]) if len(ranks) == 1 else ""
        shown = panel([facts[rank] for rank in ranks], axes, now, line)
        if shown != self._panel or is_key:
            self.tell("panel", **shown)
        is_news, self._panel = shown != self._panel, shown
        return is_news
