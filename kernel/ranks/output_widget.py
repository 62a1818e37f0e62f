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

from ..values.mime import plain

Output = dict[str, Any]

MOST_TEXT = 48_000
"""Characters of text in a row that a widget shows; of more it has the end. All of them are sent at each new line."""

_LEFT_OUT = "… what was printed before is left out\n"


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
        self._stream, self._held = "stdout", ""
        self._shell: Any = get_ipython()
        self._former = sys.stdout, sys.stderr, self._shell.publish, self._shell.clear
        sys.stdout, sys.stderr = _Writer(self, "stdout"), _Writer(self, "stderr")
        self._shell.publish, self._shell.clear = self._publish, self._clear

    def end(self) -> None:
        self.flush()
        sys.stdout, sys.stderr, self._shell.publish, self._shell.clear = self._former

    def write(self, name: str, text: str) -> None:
        """Show a line when it is whole: `print` gives it in pieces."""
        if name != self._stream:
            self.flush()
            self._stream = name
        self._held += text
        if "\n" in text:
            self.flush()

    def flush(self) -> None:
        """Show what was held back."""
        text, self._held = self._held, ""
        if not text:
            return
        outputs = list(self._outputs())
        before = outputs.pop()["text"] if outputs and outputs[-1].get("name") == self._stream else ""
        stream = {"output_type": "stream", "name": self._stream, "text": shortened(before + text)}
        self._widget.outputs = (*outputs, stream)

    def _publish(
        self, bundle: Mapping[str, object], metadata: Mapping[str, object], display_id: str | None, is_update: bool
    ) -> None:
        self.flush()
        shown = {"output_type": "display_data", "data": dict(bundle), "metadata": plain(metadata)}
        self._widget.outputs = (*self._outputs(), shown)

    def _clear(self, wait: bool) -> None:
        self.flush()
        self._clears = True
        if not wait:
            self._widget.outputs = self._outputs()

    def _outputs(self) -> tuple[Output, ...]:
        """What is there already, unless it is to be cleared."""
        kept = () if self._clears else self._widget.outputs
        self._clears = False
        return kept


def shortened(text: str) -> str:
    """The end of a long text, from the beginning of a line on if there is one.

    Example:
        >>> shortened("first\\n" + "x" * MOST_TEXT + "\\nlast\\n")
        '… what was printed before is left out\\nlast\\n'
    """
    if len(text) <= MOST_TEXT:
        return text
    end = text[-MOST_TEXT // 2 :]
    return _LEFT_OUT + (end.partition("\n")[2] or end)


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

    def flush(self) -> None:
        self._capture.flush()
