"""`ipywidgets.Output` on a rank: inside of `with`, what is printed and shown goes into the widget.

In a notebook's own kernel the front-end diverts output that carries the cell's message id. Output of ranks carries none
of theirs, so the widget's `outputs` are filled here; `interact` is built on it.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from typing import Any

from IPython.core.getipython import get_ipython

from .mime import plain

Output = dict[str, Any]


def teach() -> None:
    """Change the class `Output` of this process."""
    from ipywidgets.widgets import widget_output  # pyright: ignore[reportMissingTypeStubs]

    Output: Any = widget_output.Output
    enter, leave = Output.__enter__, Output.__exit__

    def divert(self: Any) -> Any:
        enter(self)
        _captures.append(Capture(self))
        return self

    def restore(self: Any, *error: Any) -> Any:
        try:
            return leave(self, *error)  # shows the error, inside
        finally:
            _captures.pop().end()

    Output.__enter__, Output.__exit__ = divert, restore


_captures: list[Capture] = []


class Capture:
    """Between `with` and its end: the process's streams and the shell's displays go into one widget."""

    def __init__(self, widget: Any) -> None:
        self._widget = widget
        self._clears = False
        self._shell: Any = get_ipython()
        self._former = sys.stdout, sys.stderr, self._shell.publish, self._shell.clear
        sys.stdout, sys.stderr = _Writer(self, "stdout"), _Writer(self, "stderr")
        self._shell.publish, self._shell.clear = self._publish, self._clear

    def end(self) -> None:
        sys.stdout, sys.stderr, self._shell.publish, self._shell.clear = self._former

    def write(self, name: str, text: str) -> None:
        outputs = list(self._outputs())
        if outputs and outputs[-1].get("name") == name:
            text = outputs.pop()["text"] + text
        self._widget.outputs = (*outputs, {"output_type": "stream", "name": name, "text": text})

    def _publish(
        self, bundle: Mapping[str, object], metadata: Mapping[str, object], display_id: str | None, is_update: bool
    ) -> None:
        shown = {"output_type": "display_data", "data": dict(bundle), "metadata": plain(metadata)}
        self._widget.outputs = (*self._outputs(), shown)

    def _clear(self, wait: bool) -> None:
        self._clears = True
        if not wait:
            self._widget.outputs = self._outputs()

    def _outputs(self) -> tuple[Output, ...]:
        """What is there already, unless it is to be cleared."""
        kept = () if self._clears else self._widget.outputs
        self._clears = False
        return kept


class _Writer(io.TextIOBase):
    def __init__(self, capture: Capture, name: str) -> None:
        self._capture = capture
        self._name = name

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        if text:
            self._capture.write(self._name, text)
        return len(text)
