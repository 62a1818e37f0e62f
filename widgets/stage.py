"""Where a cell's output goes: to the cell that started it, also when it comes late or from another thread."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from ..runtime.system.own_streams import put_out
from . import at_prompt
from .interval import interval

StreamName = Literal["stdout", "stderr"]


def request_of(kernel: Any) -> dict[str, Any]:
    """The request that a kernel answers on this thread; empty where there is none to be told.

    ipykernel 7.0 raises `LookupError` on threads that are not its own; later ones name the last request.
    """
    try:
        return kernel.get_parent()
    except LookupError:
        return {}


class Stage(Protocol):
    """The output area of one cell."""

    @property
    def can_update(self) -> bool:
        """Does an update replace a display? In a terminal it would stand below it."""
        ...

    def write(self, text: str, stream: StreamName = "stdout") -> None:
        """Add text."""
        ...

    def display(
        self,
        data: Mapping[str, object],
        metadata: Mapping[str, object] | None = None,
        display_id: str | None = None,
        update: bool = False,
    ) -> None:
        """Add (or with `update` replace) a display."""
        ...

    def clear(self, wait: bool = False) -> None:
        """Remove what is there."""
        ...

    def leave(self) -> None:
        """The cell has ended: what comes from now on is late."""
        ...


class CountedStage(Stage, Protocol):
    """A stage that counts: who remembers the number knows later whether more came."""

    num_put: int
    """How often something was added, not counting updates."""


class NotebookStage:
    """The output area of the running cell of an IPython shell, in a notebook or a terminal.

    While the cell runs, output goes the ordinary way, so that `%%capture` and redirected streams see it. After its end,
    and from other threads, it carries the cell's own message header: ipykernel would else add it to whichever cell (or
    widget click) came last.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._kernel = getattr(shell, "kernel", None)
        self._parent = request_of(self._kernel) if self._kernel is not None else None
        self._thread = threading.get_ident()
        self._is_over = False
        self.num_put = 0

    def leave(self) -> None:
        self._is_over = True

    @property
    def can_update(self) -> bool:
        return self._kernel is not None

    @property
    def is_in_cell(self) -> bool:
        """Does the request name a cell of a notebook? JupyterLab, Notebook 7 and VS Code do; who executes a notebook
        without a reader, or is a console, has no cell to name.
        """
        metadata: dict[str, object] = self._parent.get("metadata") or {} if self._parent is not None else {}
        return bool(metadata.get("cellId"))

    @property
    def _is_executed(self) -> bool:
        """Does a program run the notebook from end to end? It drops what does not belong to the cell that runs."""
        asks: dict[str, object] = self._parent.get("content") or {} if self._parent is not None else {}
        return not asks.get("allow_stdin", True) and not self.is_in_cell

    @property
    def _is_live(self) -> bool:
        return not self._is_over and threading.get_ident() == self._thread

    def write(self, text: str, stream: StreamName = "stdout") -> None:
        self.num_put += 1
        target = sys.stdout if stream == "stdout" else sys.stderr
        # What `%%capture` or `redirect_stdout` put there takes text of every thread; a front-end's stream files it by
        # the thread that writes.
        if self._is_live or self._kernel is None or (not self._is_over and not hasattr(target, "pub_thread")):
            at_prompt.write(text, target)
            put_out(target)
        else:
            if not self._is_over:
                put_out(target)  # what the cell itself has printed stands before
            self._send("stream", {"name": stream, "text": text})

    def display(
        self,
        data: Mapping[str, object],
        metadata: Mapping[str, object] | None = None,
        display_id: str | None = None,
        update: bool = False,
    ) -> None:
        self.num_put += not update
        transient = {"display_id": display_id} if display_id else {}
        if self._is_live or self._kernel is None:
            publisher = self._shell.display_pub
            publisher.publish(data=dict(data), metadata=dict(metadata or {}), transient=transient, update=update)
        else:
            content = {"data": dict(data), "metadata": dict(metadata or {}), "transient": transient}
            self._send("update_display_data" if update else "display_data", content)

    def clear(self, wait: bool = False) -> None:
        if self._is_live or self._kernel is None:
            self._shell.display_pub.clear_output(wait=wait)
        elif not self._is_executed:  # it would take away what another cell has said
            self._send("clear_output", {"wait": wait})

    def publish(
        self, kind: str, content: Mapping[str, object], metadata: Mapping[str, object], buffers: Sequence[bytes]
    ) -> None:
        """Send a message of another kind to the front-end, where there is one."""
        if self._kernel is not None:
            self._send(kind, content, metadata, buffers)

    def _send(
        self,
        kind: str,
        content: Mapping[str, object],
        metadata: Mapping[str, object] | None = None,
        buffers: Sequence[bytes] = (),
    ) -> None:
        kernel: Any = self._kernel

        def send() -> None:
            parent = request_of(kernel) or self._parent if self._is_executed else self._parent
            rest = {"metadata": dict(metadata or {}), "buffers": list(buffers), "ident": kernel._topic(kind)}
            kernel.session.send(kernel.iopub_socket, kind, dict(content), parent=parent, **rest)

        if not (self._is_over and self._is_executed and interval.hold(send)):
            send()
