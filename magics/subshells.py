"""The stop button for cells of subshells: heard while the notebook's main shell, which else has it, rests."""

from __future__ import annotations

import signal
import threading
from typing import Any

from ..kernel.stopping.beside import hear_by, presses
from ..runtime.wire import sigint

_IGNORED = int(signal.SIG_IGN)


class SubshellStop:
    """Takes Ctrl-C where ipykernel ignores it: between the cells of the main shell."""

    def __init__(self, shell: Any) -> None:
        self._kernel = getattr(shell, "kernel", None)

    def load(self) -> None:
        hear_by(self._hear)

    def unload(self) -> None:
        hear_by(None)

    def _hear(self) -> threading.Event | None:
        if self._kernel is None or type(threading.current_thread()).__name__ != "SubshellThread":
            return None
        is_heard = threading.Event()
        if sigint.handler() != _IGNORED:  # a cell runs in the main shell, and has it; or we have it
            is_heard.set()
        self._kernel.io_loop.add_callback(self._take, is_heard)
        return is_heard

    def _take(self, is_heard: threading.Event) -> None:
        """On the main thread. While a cell runs there, that one hears Ctrl-C."""
        if presses and sigint.handler() == _IGNORED:
            sigint.let(self._on_signal)
        elif not presses and sigint.handler() == self._on_signal:
            sigint.let(_IGNORED)
        is_heard.set()

    def _on_signal(self, *_: object) -> None:
        for press in list(presses):
            press()
