"""Pictures and tables that ranks show, side by side: 64 charts one below the other are seen by nobody. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from ..kernel.outcome import Display
from ..kernel.values.mime import unpacked
from ..runtime.ranges import named, ranks_text
from .exhibit import exhibit, side_by_side
from .style import WALL_STYLE

_CALM: Final = 0.25
"""Seconds between two drawings of a wall, at least."""

_BYTES_A_SECOND: Final = 4_000_000
"""That a wall which changes all the time sends to the notebook, at most."""

_FULL: Final = 8_000_000
"""Bytes of one wall. It is one message; what comes after goes onto another."""


def num_fitting(displays: Iterable[Display]) -> int:
    """How many of these one wall holds; the first in any case."""
    return max(1, sum(size <= _FULL for size in accumulate(map(_size_of, displays))))


def _size_of(display: Display) -> int:
    return max(map(len, display.mime.values()), default=0)


@dataclass(slots=True)
class _Hung:
    ranks: set[int]
    """Those that show it, as it was equal."""
    display: Display


class Wall:
    """One place in a cell's output, and what each rank has hung up in it.

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
        self._hung: list[_Hung] = []
        self._passed: set[int] = set()  # said something since, which stands below: so does what follows
        self._cleared: set[int] = set()  # what they have makes room for the next
        self._drawn_at: float | None = None
        self.has_changed = False
        """Since it was drawn last."""

    @property
    def ranks(self) -> set[int]:
        """All that have something here."""
        return {rank for each in self._hung for rank in each.ranks}

    @property
    def size(self) -> int:
        """Bytes of all that hangs here."""
        return sum(_size_of(each.display) for each in self._hung)

    def takes(self, ranks: Iterable[int]) -> bool:
        """Does what these ranks show now belong here?"""
        news = set(ranks) - self._cleared
        return not news or (self.size < _FULL and news.isdisjoint(self.ranks | self._passed))

    def put(self, ranks: Iterable[int], display: Display) -> None:
        """Hang it up; what these ranks have cleared comes down."""
        ranks = set(ranks)
        self._cleared -= ranks
        self.has_changed = True
        for each in self._hung:
            each.ranks -= ranks
        equal = next((each for each in self._hung if each.display.mime == display.mime), None)
        if equal is not None:
            equal.ranks |= ranks
        else:
            self._hung.append(_Hung(ranks, display))
        self._hung = [each for each in self._hung if each.ranks]

    def clear(self, rank: int) -> None:
        """What this rank shows next takes the place of this."""
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
        """What the front-end is to show, and its metadata; what hangs alone as its rank has shown it."""
        self.has_changed, self._drawn_at = False, now
        if len(self._hung) == 1:
            return unpacked(self._hung[0].display.mime), self._hung[0].display.metadata
        hung = sorted(self._hung, key=lambda each: min(each.ranks))
        return {"text/html": _html(hung), "text/plain": _text(hung)}, {}


def _html(hung: list[_Hung]) -> str:
    label = f"displays of {named([rank for each in hung for rank in each.ranks])}"
    exhibits = [exhibit(named(each.ranks), each.display.mime, each.display.metadata) for each in hung]
    return f'{WALL_STYLE}<div role="group" aria-label="{label}">{side_by_side(exhibits)}</div>'


def _text(hung: list[_Hung]) -> str:
    by_text: dict[str, list[int]] = {}
    for each in hung:
        by_text.setdefault(each.display.mime.get("text/plain", ""), []).extend(each.ranks)
    if len(by_text) == 1:
        return next(iter(by_text))
    return "\n".join(_text_of(ranks, text) for text, ranks in by_text.items())


def _text_of(ranks: Iterable[int], text: str) -> str:
    gap = "\n" if "\n" in text else " "  # lines stay under each other
    return f"{ranks_text(ranks)} │{gap}{text}"
