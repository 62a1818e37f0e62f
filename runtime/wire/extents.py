"""Which bytes of a segment of shared memory are free: numbers only."""

from __future__ import annotations

from bisect import insort


class Extents:
    """Which bytes of a segment are free; it neither has the memory nor touches it.

    What was freed last is used first for what has the same size, since its pages exist and may still be in a
    cache. Neighbours are joined only when nothing else fits.

    Example:
        >>> free = Extents(100)
        >>> free.take(40), free.take(40), free.take(40)
        (0, 40, None)
        >>> free.give(0, 40); free.give(40, 40)
        >>> free.take(100)
        0
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0
        self._free = [(0, size)]  # sorted by offset
        self._hot: dict[int, list[int]] = {}

    def take(self, size: int) -> int | None:
        """The offset of a free piece of this size, now taken, or None."""
        if hot := self._hot.get(size):
            offset = hot.pop()
        else:
            place = self._best(size)
            if place is None and any(self._hot.values()):
                self._join()
                place = self._best(size)
            if place is None:
                return None
            offset = self._cut(place, size)
        self.used += size
        return offset

    def give(self, offset: int, size: int) -> None:
        """Take back a piece that `take` gave."""
        self.used -= size
        self._hot.setdefault(size, []).append(offset)

    def holes(self) -> list[tuple[int, int]]:
        """All that is free, as `(offset, size)` in order, none next to another."""
        self._join()
        return self._free

    def _best(self, size: int) -> int | None:
        """The place in the list of the smallest piece that is large enough, of equals the lowest."""
        fitting = [(free, index) for index, (_, free) in enumerate(self._free) if free >= size]
        return min(fitting)[1] if fitting else None

    def _cut(self, place: int, size: int) -> int:
        offset, free = self._free.pop(place)
        if free > size:
            self._free.insert(place, (offset + size, free - size))
        return offset

    def _join(self) -> None:
        for size, offsets in self._hot.items():
            for offset in offsets:
                insort(self._free, (offset, size))
        self._hot.clear()
        joined: list[tuple[int, int]] = []
        for offset, size in self._free:
            if joined and sum(joined[-1]) == offset:
                offset, size = joined[-1][0], joined.pop()[1] + size
            joined.append((offset, size))
        self._free = joined
