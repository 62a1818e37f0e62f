"""Making actors again on ranks that came new, while the others live on.

A constructor that communicates (`DistributedDataParallel(model)`, say) would wait for ever there: the others were in
that collective when they were born, and do not come again. It is freed, and told so.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from ..errors import SpawnError
from ..wire.deferred import untorn
from ..wire.messages import StopActor, Strike
from .gather import Gather
from .regroup import SEQUENCE_SECONDS, ask, release
from .roster import Roster

LOOK_SECONDS = 0.25
"""How often constructors that are not done are looked at."""

NUM_LOOKS = 4
"""Seen so often in the same wait, one after the other, a constructor is taken for one that waits in vain."""

PATIENCE = 10.0
"""Seconds that constructors are waited for: one that loads a model takes longer, and calls wait for it anyway."""

Seen = tuple[str, tuple[int, ...] | None]
"""A function of torch, and the ranks that it is of; None: not known."""


class Remade(NamedTuple):
    """What became of the actors of ranks that came new, by name."""

    failed: dict[str, dict[int, BaseException]]
    """Why they could not be made, by rank."""
    making: dict[str, tuple[int, ...]]
    """On which ranks the constructor was not done yet."""


class Remaking(Gather):
    """One actor that is being made again."""

    def __init__(self, roster: Roster, ranks: Sequence[int], name: str) -> None:
        super().__init__(roster, ranks, f"{name}.__init__")
        self.name = name
        self.freed: dict[int, BaseException] = {}
        """By rank, why a constructor had to be freed; it may have been done by itself all the same."""

    @property
    def failed(self) -> dict[int, BaseException]:
        """By rank, why it could not be made."""
        return {rank: self.freed.get(rank, error) for rank, error in dict(self.errors).items()}


def begin_remaking(roster: Roster, ranks: Sequence[int]) -> list[Remaking]:
    """Let the actors of ranks that came new be made again; without waiting."""
    made: list[Remaking] = []

    def caller(name: str, chosen: Sequence[int]) -> Remaking:
        made.append(Remaking(roster, chosen, name))
        return made[-1]

    _refuse_dropped(roster, ranks)
    roster.remake_actors(ranks, caller)
    return made


def finish_remaking(roster: Roster, ranks: Sequence[int], made: Sequence[Remaking]) -> Remade:
    """Wait until they are made, as `begin_remaking` has begun.

    The process groups of all ranks are of no use afterwards where `roster.groups.is_cut`: a constructor waited in them
    for ranks that live on, and was freed.
    """
    vigil = Vigil(len(roster.states), frozenset(ranks))
    try:
        _wait(roster, made, vigil)
    except KeyboardInterrupt:
        _free_vain(roster, made, vigil)
        raise
    finally:
        for each in list(roster.births.made.values()):
            each.remaking.clear()
    failed = {each.name: each.failed for each in made if each.errors}
    return Remade(failed, {each.name: tuple(each.owing) for each in made if each.owing})


@untorn  # people press again
def _free_vain(roster: Roster, made: Sequence[Remaking], vigil: Vigil) -> None:
    """Nobody watches over them any more, and the next collective would wait for them."""
    if vain := [rank for rank, seen in _waits(roster, made).items() if vigil.is_vain(seen)]:
        _free(roster, vain)


def _refuse_dropped(roster: Roster, ranks: Sequence[int]) -> None:
    """Where a resize has brought back the number of a rank it had dropped, calls of its actors do not wait for them."""
    for actor, made in list(roster.births.made.items()):
        for rank in made.failed.difference(made.ranks).intersection(ranks):
            roster.post_control(rank, StopActor(0, actor, "its rank was dropped by a resize: spawn it again"))


def _wait(roster: Roster, made: Sequence[Remaking], vigil: Vigil) -> None:
    deadline = time.monotonic() + PATIENCE
    for turn in count():
        left = [each for each in made if not each.is_done]
        if not left or time.monotonic() > deadline:
            return
        left[0].wait(LOOK_SECONDS)
        if turn and (stuck := vigil.look(_waits(roster, left))):
            for each in left:
                each.freed.update({rank: _why(stuck[rank]) for rank in stuck.keys() & each.owing})
            _free(roster, list(stuck))


@dataclass
class Vigil:
    """Decides which of the new ranks wait in vain for others. Pure.

    Example:
        >>> vigil = Vigil(num_ranks=4, new=frozenset({1, 2}))
        >>> waits = {1: ("barrier", None), 2: ("all_reduce", (1, 2))}
        >>> [list(vigil.look(waits)) for _ in range(NUM_LOOKS)]
        [[], [], [], [1]]
    """

    num_ranks: int
    new: frozenset[int]
    _seen: dict[int, tuple[Seen, int]] = field(default_factory=dict[int, tuple[Seen, int]])

    def is_vain(self, seen: Seen) -> bool:
        """Is that a wait for ranks that live on?"""
        return not self.new.issuperset(seen[1] or range(self.num_ranks))

    def look(self, waits: Mapping[int, Seen]) -> dict[int, str]:
        """The ranks of which enough was seen, with what they wait in; they are looked at afresh from then on."""
        former, self._seen = self._seen, {}
        for rank, seen in waits.items():
            if self.is_vain(seen):
                before, times = former.get(rank, (seen, 0))
                self._seen[rank] = seen, times + 1 if before == seen else 1
        return {rank: self._seen.pop(rank)[0][0] for rank, (_, times) in list(self._seen.items()) if times >= NUM_LOOKS}


def _waits(roster: Roster, left: Sequence[Remaking]) -> dict[int, Seen]:
    return waits_of(roster, sorted({rank for each in left for rank in each.owing}))


def waits_of(roster: Roster, ranks: Sequence[int]) -> dict[int, Seen]:
    """What these ranks wait in for others; those that wait for nobody, or do not say so in time, are left out."""
    asked = ask(roster, ranks, "waits_in")
    asked.wait(SEQUENCE_SECONDS)
    return {rank: (seen[0], seen[1]) for rank, seen in dict(asked.answers).items() if seen is not None}


def _free(roster: Roster, ranks: Sequence[int]) -> None:
    struck = Gather(roster, ranks, "interrupt_actors")
    roster.inquire(ranks, struck, Strike)
    struck.wait(SEQUENCE_SECONDS)
    release(roster, ranks)


def _why(call: str) -> SpawnError:
    where = f"it waits in {call} for ranks that live on"
    return SpawnError(f"its constructor communicates ({where}): stop it, and spawn it on all ranks again")
