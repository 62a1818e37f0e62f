"""Ranks that do not move while others are done: when it is told, without ranks."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from meshbook.kernel.waiting.unfinished import UnfinishedWatch


class World:
    """A run on ranks 0 to 3, where these were seen, and what is told."""

    def __init__(self, owing: Sequence[int]) -> None:
        self.still: dict[int, tuple[str, float]] = {}
        self.others: set[int] = set()
        self.told: list[tuple[list[int], str]] = []
        sightings = SimpleNamespace(still=lambda rank: self.still.get(rank, ("", 0.0)))
        run: Any = SimpleNamespace(started=100.0, ranks=(0, 1, 2, 3), owing=list(owing), sightings=sightings)
        self.look = UnfinishedWatch(run, lambda: self.others, self._tell)

    def _tell(self, ranks: Sequence[int], mark: str, text: str) -> None:
        assert mark == "◌"
        self.told.append((list(ranks), text))


def test_they_are_told_once_those_at_one_line_together() -> None:
    world = World([1, 2])
    world.still = {1: ("cell 5 line 3", 10.2), 2: ("cell 5 line 3", 11.0)}
    world.look(105.0)
    assert not world.told
    for now in (112.0, 113.0):
        world.look(now)
    text = "have been at cell 5 line 3 for 10 s; ranks 0,3 are done: `%mesh stacks 1-2` shows more"
    assert world.told == [([1, 2], text)]


def test_one_that_does_not_answer_is_told_too() -> None:
    world = World([1])
    world.still = {1: ("", 12.0)}
    world.look(112.0)
    text = "has not answered for 10 s; ranks 0,2-3 are done: `%mesh stacks 1` shows more"
    assert world.told == [([1], text)]


def test_nothing_is_told_of_who_moves_or_is_told_of_elsewhere() -> None:
    world = World([0, 1, 2])
    world.still = {
        0: ("cell 5 line 3", 2.0),
        1: ("cell 5 line 4, waiting in barrier", 20.0),
        2: ("cell 4 line 1", 20.0),
    }
    world.others = {1, 2}
    world.look(120.0)
    assert not world.told


def test_one_that_waits_in_a_group_which_no_ledger_knows_is_told() -> None:
    """It waited in a group of torch's RPC for as long as nobody pressed stop, and nothing was said."""
    world = World([1])
    world.still = {1: ("cell 5 line 3, waiting in reduce", 12.0)}
    world.look(112.0)
    text = "has been at cell 5 line 3, waiting in reduce, for 10 s; ranks 0,2-3 are done: `%mesh stacks 1` shows more"
    assert world.told == [([1], text)]


def test_nor_where_none_is_done() -> None:
    world = World([0, 1, 2, 3])
    world.still = dict.fromkeys(range(4), ("cell 5 line 3", 99.0))
    world.look(200.0)
    assert not world.told
