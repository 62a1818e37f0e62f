"""The debugger's console: an anywidget in which the user talks with ranks that are stopped, beside the cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import traitlets

from ..kernel.debug.console import Console
from .base import STATIC, LiveWidget, script
from .style import STYLE

if TYPE_CHECKING:
    from ..kernel.mesh import Mesh


class ConsoleView(LiveWidget):
    """The console of a mesh: source, frames, variables, output, a line to type in, and buttons for what is typed often.

    While a view of it is open, stops of the mesh are answered there and not in the cells.
    """

    _esm = script("words.js", "home.js", "console.js")
    _css = STATIC / "console.css"
    title = traitlets.Unicode().tag(sync=True)

    def __init__(self, mesh: Mesh, title: str) -> None:
        super().__init__(title=title)
        self._end = ""
        self._mesh = mesh
        self.console = Console(mesh, self._say)
        self.console.start()

    @property
    def is_open(self) -> bool:
        return not self._end

    def twin(self) -> dict[str, str]:
        lines = [self.title, *(f"rank {stop.rank} at {stop.place}" for stop in self._mesh.desk.stops.waiting.values())]
        text = "\n".join([*lines, self._end or "a live console: it answers ranks that stop while its kernel runs"])
        return {"text/plain": text, "text/html": f'{STYLE}<div class="meshbook"><pre>{escape(text)}</pre></div>'}

    def on_message(self, message: Mapping[str, Any], buffers: Sequence[memoryview]) -> None:
        kind, view = message.get("kind"), str(message.get("view", ""))
        if self._end:
            self.tell("end", text=self._end)
        elif kind in ("hello", "beat"):
            self.console.appear(view)
        elif kind == "bye":
            self.console.vanish(view)
        elif kind == "line":
            self.console.type(str(message.get("text", "")))
        elif kind == "complete":
            self.console.complete(int(message.get("id", 0)), str(message.get("prefix", "")))
        elif kind == "close":
            self.console.close()

    def _say(self, kind: str, **content: Any) -> None:
        if kind == "end":
            self._end = str(content["text"])
        self.tell(kind, **content)
        if self._end:
            self.keep()
