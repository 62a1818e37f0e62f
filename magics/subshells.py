"""The stop button for cells of subshells: heard while the notebook's main shell, which else has it, rests."""

from __future__ import annotations

import signal
import threading
from typing import Any

from ..kernel.beside import hear_by, presses
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

    def _hear(self) -> bool:
        if self._kernel is None or type(threading.current_thread()).__name__ != "SubshellThread":
            return False
        self._kernel.io_loop.add_callback(self._take)
        return True

    def _take(self) -> None:
        """On the main thread. While a cell runs there, that one hears Ctrl-C."""
        if presses and sigint.handler() == _IGNORED:
            sigint.let(self._on_signal)
        elif not presses and sigint.handler() == self._on_signal:
            sigint.let(_IGNORED)

    def _on_signal(self, *_: object) -> None:
        for press in list(presses):
            press()
