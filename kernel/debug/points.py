"""The breakpoints of a mesh that were set from its notebook: which ranks have which, also ranks that come later."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from ...runtime.wire.unicode import packed
from .breakpoints import Breakpoint
from .functions import Doubt

if TYPE_CHECKING:
    from ...runtime.controller.reshape import Reshape
    from ..mesh import Mesh


@dataclass(slots=True)
class Point:
    """A breakpoint with its ranks; None: all of them, also those that a resize brings."""

    what: Breakpoint
    ranks: tuple[int, ...] | None

    def is_on(self, rank: int) -> bool:
        return self.ranks is None or rank in self.ranks


class Points:
    """The breakpoints of one mesh. Each change is sent at once, to busy ranks too."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._points: dict[int, Point] = {}
        self._last = 0

    def add(self, ranks: Sequence[int] | None, **where: Any) -> tuple[Breakpoint, dict[int, Doubt]]:
        """Set one on these ranks (None: all); `where` are the fields of `Breakpoint`.

        Gives it, and why it may stop nowhere, for those of its ranks that tell in time.
        """
        self._last += 1
        made = Breakpoint(self._last, **where)
        point = self._points[made.number] = Point(made, None if ranks is None else tuple(ranks))
        told = self.send(asked=made.number)
        return made, {rank: doubt for rank, doubt in told.items() if point.is_on(rank)}

    def switch(self, numbers: Collection[int], on: bool) -> None:
        """Turn some on or off. Raises `KeyError` for a number that there is not."""
        for number in numbers:
            point = self._points[number]
            point.what = msgspec.structs.replace(point.what, is_on=on)
        self.send()

    def remove(self, numbers: Collection[int]) -> None:
        """Forget some. Raises `KeyError` for a number that there is not."""
        for number in numbers:
            del self._points[number]
        self.send()

    def follow(self, name: str, source: str, first_line: int) -> None:
        """This cell is about to run: breakpoints of the one that was the same, and had another number, are its own."""
        run = source, first_line
        moved = [
            point
            for point in self._points.values()
            if point.what.cell not in ("", name) and self._mesh.sources.last_of(point.what.cell) == run
        ]
        for point in moved:
            point.what = msgspec.structs.replace(point.what, cell=name)
        if moved:
            self.send()

    def send(self, ranks: Collection[int] | None = None, asked: int = 0) -> dict[int, Doubt]:
        """Tell ranks (default: all that live) which are theirs; what they say of the one that is `asked` about."""
        alive = self._mesh.roster.alive()
        by_rank = {
            rank: packed([point.what for point in self._points.values() if point.is_on(rank)])
            for rank in alive
            if ranks is None or rank in ranks
        }
        told: dict[int, Doubt] = {}
        for data in set(by_rank.values()):
            told |= self._mesh.tell_debugger([rank for rank, own in by_rank.items() if own == data], "arm", data, asked)
        return told

    def renew(self, ranks: Collection[int]) -> None:
        """These ranks are new processes."""
        if self._points:
            self.send(ranks)

    def reshape(self, plan: Reshape) -> None:
        """The mesh was resized."""
        for point in self._points.values():
            if point.ranks is not None:
                point.ranks = tuple(plan.renumbered(point.ranks))

    def list(self) -> list[tuple[Point, dict[int, int]]]:
        """All there are, with how often each rank has stopped at them."""
        told = self._mesh.tell_debugger(self._mesh.roster.alive(), "hits") if self._points else {}
        return [
            (point, {rank: hits[number] for rank, hits in told.items() if number in hits})
            for number, point in self._points.items()
        ]

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(self._points)
