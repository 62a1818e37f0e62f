"""What a cell waits for on ranks, and who is told what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

Tell = Callable[[Sequence[int], str, str], object]
"""Called with ranks, a mark for the gutter, and a line."""


class Waited(Protocol):
    """A run of a cell, or calls of actors."""

    @property
    def started(self) -> float: ...

    @property
    def owing(self) -> list[int]:
        """The ranks that have not answered yet."""
        ...

    def miss(self, ranks: set[int]) -> None:
        """It waits in a collective for these ranks, which are dead."""
