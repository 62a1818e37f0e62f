"""Which cells the ranks were sent before: a source travels once, later runs of it name its key."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

KEPT = 256
"""Sources that ranks keep; the least recently used goes first."""


class Sent:
    """The book of the sources that were sent. Which keys a rank has is kept with its process (`RankState.keeps`).

    Example:
        >>> sent, one, other = Sent(), set(), set()
        >>> sent.key_of("x = 1", [one])
        (1, 'x = 1')
        >>> sent.note(1, [one])
        >>> sent.key_of("x = 1", [one]), sent.key_of("x = 1", [one, other])
        ((1, None), (1, 'x = 1'))
    """

    def __init__(self) -> None:
        self._keys: dict[str, int] = {}  # by source, the least recently used first
        self._numbers = itertools.count(1)

    def key_of(self, source: str, ranks: Iterable[set[int]]) -> tuple[int, str | None]:
        """The key of a source that is about to be sent to ranks with these keys, and its text if one of them needs it.

        `note` says when it is on its way: what could not be sent, or was interrupted, no rank has.
        """
        key = self._keys.pop(source, None) or next(self._numbers)
        self._keys[source] = key
        return key, None if all(key in keys for keys in ranks) else source

    def note(self, key: int, ranks: Iterable[set[int]]) -> None:
        """It is on its way to them."""
        for keys in ranks:
            keys.add(key)

    def outdated(self, ranks: Iterable[set[int]]) -> list[int]:
        """The keys of sources that ranks need to keep no longer, if there are any; they are forgotten here."""
        outdated = [self._keys.pop(next(iter(self._keys))) for _ in range(len(self._keys) - KEPT)]
        for keys in ranks if outdated else ():
            keys.difference_update(outdated)
        return outdated
