"""The user of this notebook or terminal, as one who can be asked."""

from __future__ import annotations

import getpass
import sys
from contextlib import nullcontext
from typing import Any

from ..widgets import at_prompt
from ..widgets.stage import NotebookStage


class NotebookAsker:
    """Asks in the input box of the front-end that has sent the running cell, or at the terminal."""

    is_beside = False

    def __init__(self, shell: Any) -> None:
        self._kernel: Any = getattr(shell, "kernel", None)
        # Each request says whether its front-end can ask (nbclient and papermill have nobody). What the kernel itself
        # keeps is that of the last request, and that may be one beside this cell.
        request: dict[str, Any] = self._kernel.get_parent().get("content", {}) if self._kernel is not None else {}
        self._is_allowed = bool(request.get("allow_stdin", True))
        self._stage = NotebookStage(shell)

    @property
    def can_ask(self) -> bool:
        return self._is_allowed if self._kernel is not None else sys.stdin.isatty()

    def ask(self, prompt: str, is_secret: bool = False) -> str:
        if self._kernel is not None and hasattr(self._kernel, "_allow_stdin"):
            self._kernel._allow_stdin = self._is_allowed
        try:
            with at_prompt.standing(prompt, is_secret=is_secret) if self._kernel is None else nullcontext():
                return getpass.getpass(prompt) if is_secret else input(prompt)
        except KeyboardInterrupt:  # not from within ipykernel: nobody wants to read those lines
            raise KeyboardInterrupt from None

    def show(self, text: str) -> None:
        if text:
            self._stage.write(text if text.endswith("\n") else f"{text}\n")
