"""Places of displays in an output area that several ranks share: what a rank clears, its next displays take.

One rank cannot wipe what others have said, but it can put a new figure where its own stood: `clear_output(wait=True)`
and a plot, in a loop.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Slot:
    ranks: tuple[int, ...]
    """Those that show what is there, as it was equal."""
    cleared: set[int] = field(default_factory=set[int])
    is_empty: bool = False

    @property
    def is_free(self) -> bool:
        return len(self.cleared) == len(self.ranks)


class Slots:
    """Who shows what where, by display id.

    Example:
        >>> slots = Slots()
        >>> first, _ = slots.place([0])
        >>> slots.clear(0)
        >>> slots.place([0]) == (first, True)
        True
    """

    def __init__(self) -> None:
        self._slots: dict[str, _Slot] = {}
        self._has_free = False

    def clear(self, rank: int) -> None:
        """A rank clears what it has shown; what others show too stands until all of them do."""
        for slot in self._slots.values():
            if rank in slot.ranks:
                slot.cleared.add(rank)
                self._has_free |= slot.is_free

    def join(self, place: str, ranks: Iterable[int]) -> None:
        """More ranks show something in a place, or show something there again."""
        slot = self._slots[place]
        slot.ranks = tuple(sorted({*slot.ranks, *ranks}))
        slot.cleared.difference_update(ranks)
        slot.is_empty = False

    def place(self, ranks: Sequence[int]) -> tuple[str, bool]:
        """Where something goes that these ranks show, and whether it takes the place of something else."""
        key = tuple(sorted(ranks))
        if self._has_free:
            for place, slot in self._slots.items():
                if slot.is_free and slot.ranks == key:
                    slot.cleared.clear()
                    slot.is_empty = False
                    return place, True
        place = uuid.uuid4().hex
        self._slots[place] = _Slot(key)
        return place, False

    def to_empty(self, ranks: Sequence[int]) -> list[str]:
        """The free places of any of these ranks that still show something; they are empty now."""
        if not self._has_free:
            return []
        found = [
            place
            for place, slot in self._slots.items()
            if slot.is_free and not slot.is_empty and not set(slot.ranks).isdisjoint(ranks)
        ]
        for place in found:
            self._slots[place].is_empty = True
        return found
