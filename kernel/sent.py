"""Which cells the ranks were sent before: a source travels once, later runs of it name its key."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

KEPT = 256
"""Sources that ranks keep; the least recently used goes first."""


class Sent:
    """The book of the sources that were sent.

    Example:
        >>> sent = Sent()
        >>> sent.key_of("x = 1", [0, 1])
        (1, 'x = 1')
        >>> sent.note(1, [0, 1])
        >>> sent.key_of("x = 1", [1]), sent.key_of("x = 1", [1, 2])
        ((1, None), (1, 'x = 1'))
    """

    def __init__(self) -> None:
        self._keys: dict[str, int] = {}  # by source, the least recently used first
        self._known: dict[int, set[int]] = {}  # by rank: the keys it was sent
        self._numbers = itertools.count(1)

    def key_of(self, source: str, ranks: Sequence[int]) -> tuple[int, str | None]:
        """The key of a source that is about to be sent to these ranks, and its text if one of them needs it."""
        key = self._keys.pop(source, None) or next(self._numbers)
        self._keys[source] = key
        return key, None if all(key in self._known.get(rank, ()) for rank in ranks) else source

    def note(self, key: int, ranks: Sequence[int]) -> None:
        """It is on its way to them. Not before: what could not be sent, or was interrupted, no rank has."""
        for rank in ranks:
            self._known.setdefault(rank, set()).add(key)

    def outdated(self) -> int | None:
        """The key of a source that ranks need to keep no longer, if there is one; it is forgotten here."""
        if len(self._keys) <= KEPT:
            return None
        key = self._keys.pop(next(iter(self._keys)))
        for known in self._known.values():
            known.discard(key)
        return key

    def renew(self, ranks: Iterable[int]) -> None:
        """Other processes are in the places of these ranks: they know nothing."""
        for rank in ranks:
            self._known.pop(rank, None)

    def reshape(self, kept: Mapping[int, int]) -> None:
        """Ranks have new numbers, by their old ones; those not named are gone."""
        self._known = {kept[rank]: keys for rank, keys in self._known.items() if rank in kept}
