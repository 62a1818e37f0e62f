"""What code of an actor has raised last on this rank, for who wants to look at it afterwards."""

from __future__ import annotations

from collections.abc import Callable

from ...runtime.ranks.failure import safe_str
from .remains import is_out_of_memory, summary_of


class ActorErrors:
    """Keeps the last one with its frames; of one for want of memory a text.

    Until that actor is called again or stopped, another of its name is made, another fails, or a cell runs here.
    """

    def __init__(self, on_keep: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self.summary = ""
        self._actor = ""
        self._on_keep = on_keep

    def keep(self, actor: str, error: BaseException) -> None:
        """On the thread of the actor, before anybody hears of the error."""
        self._on_keep()
        self._actor, self.error, self.summary = actor, error, ""
        if is_out_of_memory(error):
            self.error, self.summary = None, f"{type(error).__name__}: {safe_str(error)}\n{summary_of(error)}"

    def let_go(self, actor: str) -> None:
        """Forget what this actor has left, if it was the last one."""
        if actor == self._actor:
            self.clear()

    def clear(self) -> None:
        """Forget it, whoever left it."""
        self.error, self.summary = None, ""
