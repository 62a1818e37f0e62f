"""What ranks did in common in a cell that failed: may one do it again alone, and are they still alike?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ...runtime.groups.models import Unreduced
from ...runtime.ranges import named

GIVEN_UP = (
    "gradients that `fully_shard` was still to reduce are given up on all ranks of this cell: begin again with the "
    "first microbatch of the step"
)


class Deeds(NamedTuple):
    """Of a rank, in a cell."""

    has_met: bool
    """Has it issued a collective?"""
    num_steps: int
    """How many steps have its optimizers made?"""
    unreduced: Unreduced = ""


_MOST_NAMED = 3
"""Numbers of steps that are told with their ranks; of more, from where to where they go."""


@dataclass(frozen=True, slots=True)
class Together:
    """What a failed cell's ranks did in common."""

    needs_all: bool = False
    """Do ranks need the others to run it again? There are collectives in it."""
    uneven: str = ""
    """Which ranks have made more steps of their optimizers than others, in one line."""
    unreduced: Unreduced = ""
    """What is true of any: where one has begun with gradients, or has given them up, ranks differ in them."""
    given_up: str = ""
    """That they are given up, in one line."""

    @property
    def notes(self) -> list[str]:
        """What the user is to know of models, a line each."""
        return list(filter(None, [self.uneven, self.given_up]))


def together(deeds: Mapping[int, Deeds]) -> Together:
    """What these ranks did in common, some of which failed.

    Example:
        >>> print(together({0: Deeds(True, 1), 1: Deeds(True, 0)}).uneven)
        rank 0 has made 1 optimizer step in this cell, rank 1 none: models and optimizers differ now, load a checkpoint
    """
    steps = {rank: each.num_steps for rank, each in deeds.items()}
    found = {each.unreduced for each in deeds.values()}
    unreduced = "begun" if "begun" in found else "kept" if "kept" in found else ""
    return Together(any(each.has_met for each in deeds.values()), _uneven(steps), unreduced)


def _uneven(steps: Mapping[int, int]) -> str:
    by_number: dict[int, list[int]] = {}
    for rank in sorted(steps):
        by_number.setdefault(steps[rank], []).append(rank)
    numbers = sorted(by_number, reverse=True)
    if len(numbers) < 2:
        return ""
    if len(numbers) > _MOST_NAMED:
        told = f"{named(sorted(steps))} have made {numbers[-1]} to {numbers[0]} optimizer steps in this cell"
    else:
        first, *rest = numbers
        have = "have" if by_number[first][1:] else "has"
        told = f"{named(by_number[first])} {have} made {first} optimizer step{'s' * (first != 1)} in this cell"
        told += "".join(f", {named(by_number[number])} {number or 'none'}" for number in rest)
    return f"{told}: models and optimizers differ now, load a checkpoint"
