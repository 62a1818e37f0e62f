"""The actor that chaos calls."""

from __future__ import annotations

from meshbook.runtime.actor import Actor, endpoint


class Tally(Actor):
    """Counts from a start."""

    def __init__(self, start: int) -> None:
        self.total = start

    @endpoint
    def add(self, amount: int) -> int:
        self.total += amount
        return self.total
