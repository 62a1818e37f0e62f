"""A console beside the cells: the user talks there with who is stopped, whatever cell runs.

It answers through the same `Conversation` as the prompt in a cell, on a thread of its own, and tells its view what to
show. While somebody sees it, cells of its mesh do not ask.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import msgspec

from ..failures.story import without_escapes
from .asking import Withdrawn
from .desk import still_waits
from .events import Stop
from .sitting import conversation_of, names_of
from .stops import key_of

if TYPE_CHECKING:
    from ..mesh import Mesh

LAPSE = 90.0
"""Seconds after which a view that says nothing is taken for gone: browsers let hidden pages speak once a minute."""

_KEPT = 400
_TICK = 0.5

Tell = Callable[..., object]
"""Called with a kind of message and its content."""


class Console:
    """The console of one mesh. `tell` sends to its views; `do` takes what the user types or clicks."""

    is_beside = True
    can_ask = True

    def __init__(self, mesh: Mesh, tell: Tell) -> None:
        self._mesh = mesh
        self._desk = mesh.desk
        self._tell = tell
        self._views: dict[str, float] = {}
        self._lines: SimpleQueue[str | None] = SimpleQueue()  # None: something has happened
        self._said: deque[str] = deque(maxlen=_KEPT)
        self._asked: Stop | None = None
        self._is_secret = False
        self._seen: tuple[Stop, dict[str, Any] | None] | None = None
        self._num_answers = 0
        self._is_closed = False
        self._name_of = names_of(mesh)

    def start(self) -> None:
        """Listen to the mesh, and serve its stops when a view is there."""
        self._desk.console = lambda: self.is_seen
        self._desk.listeners.append(self._wake)
        threading.Thread(target=self._run, name="meshbook-console", daemon=True).start()

    def close(self) -> None:
        """From now on cells ask again."""
        self._is_closed = True
        self._desk.console = lambda: False
        if self._wake in self._desk.listeners:
            self._desk.listeners.remove(self._wake)
        self._wake()

    @property
    def is_seen(self) -> bool:
        """Does somebody look at it?"""
        return not self._is_closed and any(time.monotonic() - heard < LAPSE for heard in list(self._views.values()))

    # What the views say; on the kernel's threads.

    def appear(self, view: str) -> None:
        """A view is there, or lives."""
        is_new = view not in self._views
        self._views[view] = time.monotonic()
        if is_new:
            self._tell("log", text="".join(self._said))
            self._wake()

    def vanish(self, view: str) -> None:
        """A view is gone."""
        self._views.pop(view, None)
        self._wake()

    def type(self, line: str) -> None:
        """The user has typed a line, or pressed a button that stands for one."""
        self._lines.put(line)

    def complete(self, number: int, prefix: str) -> None:
        """Answer what could stand where this begins."""
        stop = self._asked
        words = self._desk.completions(stop, prefix) if stop is not None else []
        self._tell("completions", id=number, prefix=prefix, words=words[:60])

    # What a conversation wants of its user; on the console's thread.

    def ask(self, prompt: str, is_secret: bool = False) -> str:
        """Wait for a line; raises `Withdrawn` when who is asked for has gone, or the console has."""
        self._asked, self._is_secret = self._desk.stops.focused(), is_secret
        try:
            while True:
                self._show_state(prompt)
                line = self._lines.get()
                if line is not None:
                    self._num_answers += 1
                    self.show(f"{prompt}{'' if is_secret else line}\n")
                    return line
                if self._asked is None or not still_waits(self._desk, self._asked) or not self.is_seen:
                    raise Withdrawn
        finally:
            self._asked = None

    def show(self, text: str) -> None:
        """Add to what is shown."""
        if text:
            plain = without_escapes(text if text.endswith("\n") else f"{text}\n")
            self._said.append(plain)
            self._tell("out", text=plain)

    def _run(self) -> None:
        conversation = conversation_of(self._mesh, self, self._is_quiet)
        while not self._is_closed and not self._mesh.is_down:
            if self.is_seen and self._desk.is_wanted:
                conversation.hold()
            self._show_state("")
            self._rest()
        self._tell("end", text="the mesh was taken down" if self._mesh.is_down else "closed: cells ask again")

    def _rest(self) -> None:
        """Until something happens; what is typed while nobody asks is for nobody."""
        try:
            line = self._lines.get(timeout=_TICK)
        except Empty:
            return
        if line is not None:
            self.show("no rank is stopped\n")

    def _is_quiet(self) -> bool:
        return not any(state.is_at_work for state in self._mesh.roster.states.values())

    def _wake(self) -> None:
        self._lines.put(None)

    def _show_state(self, prompt: str) -> None:
        self._tell("state", **self.state(prompt))

    def state(self, prompt: str) -> dict[str, Any]:
        """Who is stopped, who is asked for, and where that one is."""
        stops = [stop for _, stop in sorted(self._desk.stops.waiting.items())]
        return {
            "stops": [self._facts(stop) for stop in stops],
            "focus": list(key_of(self._asked)) if self._asked is not None else None,
            "prompt": prompt,
            "secret": self._is_secret,
            "view": self._view(),
            "answers": self._num_answers,
        }

    def _facts(self, stop: Stop) -> dict[str, Any]:
        return {
            "rank": stop.rank,
            "talk": stop.talk,
            "name": self._name_of(stop.rank),
            "kind": stop.kind,
            "place": stop.place,
            "thread": stop.thread,
        }

    def _view(self) -> dict[str, Any] | None:
        """Where who is asked for is; asked of its rank once a question."""
        stop = self._asked
        if stop is None:
            return None
        if self._seen is None or (key_of(self._seen[0]), self._seen[0].turn) != (key_of(stop), stop.turn):
            found = self._desk.view(stop) if stop.kind not in ("input", "password") else None
            self._seen = stop, _plain(found) if found is not None else None
        return self._seen[1]


def _plain(view: Any) -> dict[str, Any]:
    plain = msgspec.structs.asdict(view)
    return plain | {"levels": [msgspec.structs.asdict(level) for level in view.levels]}
