"""Pictures that ranks show in a cell, side by side: 64 charts one below the other are seen by nobody. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from ..kernel.mime import unpacked
from ..kernel.outcome import Display
from ..runtime.ranges import named, ranks_text
from .exhibit import exhibit, side_by_side
from .style import WALL_STYLE

_CALM: Final = 0.25
"""Seconds between two drawings of a wall, at least."""

_BYTES_A_SECOND: Final = 4_000_000
"""That a wall which changes all the time sends to the notebook, at most."""

_FULL: Final = 8_000_000
"""Bytes of one wall. It is one message; what comes after goes onto another."""


def num_fitting(pictures: Iterable[Display]) -> int:
    """How many of these one wall holds; the first in any case."""
    return max(1, sum(size <= _FULL for size in accumulate(map(_size_of, pictures))))


def _size_of(picture: Display) -> int:
    return max(map(len, picture.mime.values()), default=0)


@dataclass(slots=True)
class _Picture:
    ranks: set[int]
    """Those that show it, as it was equal."""
    display: Display


class Wall:
    """One place in a cell's output, and the picture of each rank in it.

    Example:
        >>> wall = Wall("a display id")
        >>> wall.put([1], Display(1, 1, {"image/png": "UE5H", "text/plain": "<Figure>"}))
        >>> wall.put([0], Display(1, 1, {"image/png": "R0lG", "text/plain": "<Figure>"}))
        >>> data, _ = wall.drawn(now=0.0)
        >>> data["text/plain"]
        '<Figure>'
        >>> wall.takes([1]), wall.takes([2])
        (False, True)
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self._pictures: list[_Picture] = []
        self._passed: set[int] = set()  # said something since, which stands below: so does what follows
        self._cleared: set[int] = set()  # their pictures make room for the next ones
        self._drawn_at: float | None = None
        self.has_changed = False
        """Since it was drawn last."""

    @property
    def ranks(self) -> set[int]:
        """All that have a picture here."""
        return {rank for picture in self._pictures for rank in picture.ranks}

    @property
    def size(self) -> int:
        """Bytes of all pictures."""
        return sum(_size_of(picture.display) for picture in self._pictures)

    def takes(self, ranks: Iterable[int]) -> bool:
        """Does what these ranks show now belong here?"""
        news = set(ranks) - self._cleared
        return not news or (self.size < _FULL and news.isdisjoint(self.ranks | self._passed))

    def put(self, ranks: Iterable[int], display: Display) -> None:
        """Hang it up; what these ranks have cleared comes down."""
        ranks = set(ranks)
        self._cleared -= ranks
        self.has_changed = True
        for picture in self._pictures:
            picture.ranks -= ranks
        equal = next((picture for picture in self._pictures if picture.display.mime == display.mime), None)
        if equal is not None:
            equal.ranks |= ranks
        else:
            self._pictures.append(_Picture(ranks, display))
        self._pictures = [picture for picture in self._pictures if picture.ranks]

    def clear(self, rank: int) -> None:
        """The next picture of this rank takes the place of this one."""
        if rank in self.ranks:
            self._cleared.add(rank)

    def pass_by(self, ranks: Iterable[int]) -> None:
        """These ranks have said something that stands below."""
        self._passed.update(ranks)

    def is_due(self, now: float) -> bool:
        """Is there something new, and has the last drawing stood for long enough?"""
        return self.has_changed and self.wait(now) <= 0.0

    def wait(self, now: float) -> float:
        """Seconds for which the last drawing stands, still."""
        calm = max(_CALM, self.size / _BYTES_A_SECOND)
        return 0.0 if self._drawn_at is None else self._drawn_at + calm - now

    def drawn(self, now: float) -> tuple[Mapping[str, object], Mapping[str, object]]:
        """What the front-end is to show, and its metadata; one picture alone as its rank has shown it."""
        self.has_changed, self._drawn_at = False, now
        if len(self._pictures) == 1:
            return unpacked(self._pictures[0].display.mime), self._pictures[0].display.metadata
        pictures = sorted(self._pictures, key=lambda picture: min(picture.ranks))
        return {"text/html": _html(pictures), "text/plain": _text(pictures)}, {}


def _html(pictures: list[_Picture]) -> str:
    label = f"displays of {named([rank for picture in pictures for rank in picture.ranks])}"
    hung = [exhibit(named(picture.ranks), picture.display.mime, picture.display.metadata) for picture in pictures]
    return f'{WALL_STYLE}<div role="group" aria-label="{label}">{side_by_side(hung)}</div>'


def _text(pictures: list[_Picture]) -> str:
    by_text: dict[str, list[int]] = {}
    for picture in pictures:
        by_text.setdefault(picture.display.mime.get("text/plain", ""), []).extend(picture.ranks)
    if len(by_text) == 1:
        return next(iter(by_text))
    return "\n".join(_text_of(ranks, text) for text, ranks in by_text.items())


def _text_of(ranks: Iterable[int], text: str) -> str:
    gap = "\n" if "\n" in text else " "  # lines stay under each other
    return f"{ranks_text(ranks)} │{gap}{text}"
