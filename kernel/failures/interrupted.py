"""How Ctrl-C in a cell is told: in one line without our frames, below the story of ranks that have failed."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from ...runtime.errors import Storied


class Interrupted(Storied, KeyboardInterrupt):
    """The user stopped a cell. Its story is of the ranks that have failed by themselves, if there are any."""

    def plain(self) -> KeyboardInterrupt:
        """The same of Python's own class: only of that a script ends as by Ctrl-C, and the loop of a shell with it."""
        plain = KeyboardInterrupt(*self.args)
        for note in getattr(self, "__notes__", ()):
            plain.add_note(note)
        return plain


Interrupted.__name__ = "KeyboardInterrupt"  # what front-ends show as the name of the error, and look for


@contextmanager
def told_in_one_line(what: str) -> Generator[None]:
    """Inside, Ctrl-C of which nobody tells more is told as `what`.

    Example:
        >>> try:
        ...     with told_in_one_line("the cell was stopped as it was sent"):
        ...         raise KeyboardInterrupt
        ... except KeyboardInterrupt as stop:
        ...     print(stop)
        the cell was stopped as it was sent
    """
    try:
        yield
    except Interrupted:
        raise
    except KeyboardInterrupt:
        raise Interrupted(what) from None
