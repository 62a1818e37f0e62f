"""Who can be asked: the user of this process, through whatever front-end it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Withdrawn(Exception):
    """Who was asked for does not wait any more: there is nothing to answer."""


class Asker(Protocol):
    """The notebook's input box, or a terminal."""

    is_beside: bool
    """Does it ask beside the cells, in a place of its own?"""

    @property
    def can_ask(self) -> bool:
        """Is there somebody who can type? (Ask on the thread that runs the cell: front-ends refuse others.)"""
        ...

    def ask(self, prompt: str, is_secret: bool = False) -> str:
        """A line, without its newline.

        Raises `EOFError` where there is nobody any more, `KeyboardInterrupt` for the stop button, `Withdrawn` where the
        question has gone.
        """
        ...

    def show(self, text: str) -> None:
        """Print for the user."""
        ...


_make: Callable[[], Asker] | None = None


def ask_by(make: Callable[[], Asker] | None) -> None:
    """How the user of the cell that runs now can be asked, from now on; None: nobody can."""
    global _make
    _make = make


def is_attended() -> bool:
    """Is this a notebook, or another place that asks in a way of its own?"""
    return _make is not None


def asker() -> Asker | None:
    """Who can be asked in the cell that begins now."""
    found = None if _make is None else _make()
    return found if found is not None and found.can_ask else None
