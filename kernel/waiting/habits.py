"""Ranks that come late look after look, and cost so much that it is told unasked. Pure: time is an argument."""

from __future__ import annotations

from collections.abc import Iterable

from .latecomers import Late

MUCH = 0.25
"""The part of the time that must be lost to be told unasked; `%mesh ledger` tells of less."""

APART = 1.0
"""Seconds between the two looks at which it is seen."""


class Habits:
    """Who comes late at every look for a second: of a few collectives one rank may be the last by chance.

    Example:
        >>> habits, late = Habits(), Late("barrier", (2,), delay=0.05, waited=1.0, seconds=2.0)
        >>> [len(habits.settled([late], now)) for now in (10.0, 10.3, 11.3)]
        [0, 0, 1]
    """

    def __init__(self) -> None:
        self._since: dict[tuple[tuple[int, ...], str], float] = {}

    def settled(self, found: Iterable[Late], now: float) -> list[Late]:
        """Those of a look at `now` that have been seen for so long."""
        late = {(each.ranks, each.what): each for each in found if each.part >= MUCH}
        self._since = {habit: self._since.get(habit, now) for habit in late}
        return [each for habit, each in late.items() if now - self._since[habit] >= APART]
