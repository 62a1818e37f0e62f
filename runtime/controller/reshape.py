"""What becomes of the ranks of a mesh whose axes change their sizes. Pure: two grids in, a plan out.

A rank that stays keeps its coordinates. Its number is its place in row-major order, so it keeps that too where only
the outermost axis changes, and gets another one elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..ranks.place import coordinates
from ..shape import Shape


@dataclass(frozen=True, slots=True)
class Reshape:
    """The way from one grid of ranks to another with the same axes.

    Example:
        >>> plan = Reshape.of({"dp": 2, "tp": 2}, {"tp": 3})
        >>> plan.kept, plan.added, plan.dropped, plan.keeps_numbers
        ({0: 0, 1: 1, 2: 3, 3: 4}, (2, 5), (), False)
    """

    old: dict[str, int]
    new: dict[str, int]
    kept: dict[int, int]
    """By its old number, the new one of each rank that stays."""
    added: tuple[int, ...]
    """New numbers of the ranks that come."""
    dropped: tuple[int, ...]
    """Old numbers of the ranks that go."""
    keeps_numbers: bool
    """Does every number that is in both grids stand for the same coordinates in both?"""

    @classmethod
    def of(cls, old: Mapping[str, int], sizes: Mapping[str, int]) -> Reshape:
        """The plan for these new sizes; axes that are not named stay as they are.

        Raises:
            ValueError: the mesh has no such axis, or a size is below 1.
        """
        for axis, size in sizes.items():
            if axis not in old:
                raise ValueError(f"the mesh has no axis {axis!r} to resize: it has {', '.join(old) or 'none'}")
            if size < 1:
                raise ValueError(f"axis {axis!r} cannot have size {size}; an axis has at least 1 rank")
        new = {axis: sizes.get(axis, size) for axis, size in old.items()}
        num_old, num_new = math.prod(old.values()), math.prod(new.values())
        places = {rank: coordinates(rank, old) for rank in range(num_old)}
        kept = {rank: number(place, new) for rank, place in places.items() if _is_inside(place, new)}
        return cls(
            dict(old),
            new,
            kept,
            tuple(rank for rank in range(num_new) if not _is_inside(coordinates(rank, new), old)),
            tuple(rank for rank in range(num_old) if rank not in kept),
            all(coordinates(rank, new) == places[rank] for rank in range(min(num_old, num_new))),
        )

    @property
    def num_ranks(self) -> int:
        return math.prod(self.new.values())

    def renumbered(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """The new numbers of those among these ranks that stay."""
        return tuple(self.kept[rank] for rank in ranks if rank in self.kept)

    def extended(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """The new numbers of a set of ranks, with the ranks that come and belong to it.

        One belongs to it where all those do that it agrees with on every axis on which it stands within the old grid.

        Example:
            >>> plan = Reshape.of({"dp": 2, "tp": 2}, {"dp": 3})
            >>> plan.extended([0, 1, 2, 3]), plan.extended([0, 2]), plan.extended([0, 1])
            ((0, 1, 2, 3, 4, 5), (0, 2, 4), (0, 1))
        """
        chosen = set(ranks)
        came = [rank for rank in self.added if chosen.issuperset(self._relatives(rank))]
        return tuple(sorted({*self.renumbered(sorted(chosen)), *came}))

    def _relatives(self, rank: int) -> list[int]:
        place = coordinates(rank, self.new)
        shape = Shape.row_major(self.old)
        for axis, index in place.items():
            if index < self.old[axis]:
                shape = shape.at(axis, index)
        return list(shape.ranks())


def number(place: Mapping[str, int], axes: Mapping[str, int]) -> int:
    """The row-major number of the rank at these coordinates: the inverse of `coordinates`.

    Example:
        >>> number({"dp": 1, "tp": 2}, {"dp": 2, "tp": 4})
        6
    """
    rank = 0
    for axis, size in axes.items():
        rank = rank * size + place[axis]
    return rank


def _is_inside(place: Mapping[str, int], axes: Mapping[str, int]) -> bool:
    return all(index < axes[axis] for axis, index in place.items())
