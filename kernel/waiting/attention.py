"""Was this process away, at a prompt or in a long garbage collection? Then silence of ranks means nothing.

What they said meanwhile may not have been read yet, though its time seems to be over.
"""

from __future__ import annotations


class Attention:
    """Notices that who looks again and again did not, for longer than it should have taken.

    Never twice in a row: who always comes late is just slow, and would wait for ever.

    Example:
        >>> attention = Attention(0.1, now=5.0)
        >>> [attention.missed(now) for now in (5.1, 5.5, 6.5, 6.6)]
        [0.0, 0.4, 0.0, 0.0]
    """

    def __init__(self, longest: float, now: float | None = None) -> None:
        """`longest` is how many seconds may lie between two looks; `now` the first of them, if not the next call."""
        self._longest = longest
        self._last = now
        self._was_away = False

    def missed(self, now: float) -> float:
        """The seconds since the last look, if these were too many; else 0."""
        gap = now - self._last if self._last is not None else 0.0
        self._last = now
        self._was_away = gap > self._longest and not self._was_away
        return round(gap, 6) if self._was_away else 0.0
