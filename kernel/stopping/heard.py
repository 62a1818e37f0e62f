"""Ranks that are still at work after an interrupt: some hear nothing, others have heard it, and save a checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ...runtime.controller.regroup import ask
from ...runtime.controller.roster import Roster

AGAIN = "interrupts once more, and breaks off collectives"
"""What another press of the stop button does."""


class Heard(NamedTuple):
    """Ranks whose code was interrupted and goes on: in an `except`, a `finally`, an `__exit__`."""

    ranks: tuple[int, ...] = ()
    waits: tuple[str, ...] = ()
    """What each of them waits in for others; empty for one that works."""

    @property
    def at_work(self) -> list[int]:
        """Those that work."""
        return [rank for rank, call in zip(self.ranks, self.waits, strict=True) if not call]


def listen(roster: Roster, ranks: Sequence[int], timeout: float = 0.2) -> Heard:
    """Ask these ranks; those that say nothing in time have heard nothing."""
    asked = ask(roster, ranks, "after_interrupt")
    asked.wait(timeout)
    waits = {rank: call for rank, call in sorted(asked.answers.items()) if call is not None}
    return Heard(tuple(waits), tuple(waits.values()))


def reactions(
    ranks: Sequence[int], heard: Collection[int], places: Mapping[int, str] = MappingProxyType({})
) -> dict[tuple[int, ...], str]:
    """What those that are still at work made of the interrupt: those in `heard` have, and save a checkpoint, perhaps.

    Example:
        >>> reactions([0, 1, 2], heard=[1], places={1: "cell 5 line 3"})
        {(0, 2): 'do not react yet', (1,): 'was interrupted, and works on (cell 5 line 3)'}
    """
    deaf = tuple(rank for rank in sorted(ranks) if rank not in heard)
    rest = tuple(rank for rank in sorted(ranks) if rank in heard)
    told = {
        deaf: "do not react yet" if deaf[1:] else "does not react yet",
        rest: "were interrupted, and work on" if rest[1:] else "was interrupted, and works on",
    }
    return {ranks: f"{words}{_where(places, ranks)}" for ranks, words in told.items() if ranks}


def _where(places: Mapping[int, str], ranks: Sequence[int]) -> str:
    where = "; ".join(dict.fromkeys(places[rank] for rank in ranks if places.get(rank)))
    return f" ({where})" if where else ""
