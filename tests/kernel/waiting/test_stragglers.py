"""When it is told in the cell that ranks come late: of made-up ledgers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from meshbook.kernel.waiting.collectives import MeshLedger
from meshbook.kernel.waiting.habits import APART
from meshbook.kernel.waiting.stragglers import ADVICE, ADVICE_ON_BARE, StragglerWatch
from meshbook.runtime.groups.ledger import Entry, Group, RankLedger

GROUP = Group("0", "gloo", "default_pg", (0, 1, 2, 3))
STEP = 0.1


class World:
    """A cell on four ranks that began some steps ago; what is told of it."""

    def __init__(
        self, steps: int = 20, places: Mapping[int, Mapping[str, int]] | None = None, *, is_bare: bool = False
    ) -> None:
        self._now = 100.0
        self._seconds = steps * STEP
        self.owing = [0, 1, 2, 3]
        self.told: list[str] = []
        seen = dict(places or {})
        self._watch = StragglerWatch(self, self._tell, lambda rank: seen.get(rank, {}), is_bare=is_bare)

    @property
    def started(self) -> float:
        return self._now - self._seconds

    def miss(self, ranks: set[int]) -> None:
        raise AssertionError(ranks)

    def look(
        self, late: Mapping[int, float], steps: int = 10, before: int = 1, ranks: Sequence[int] = range(4)
    ) -> None:
        """A second later: these ranks came so late to each of these steps, the last of which was `before` steps ago."""
        self._now += APART
        ledgers = {
            rank: _ledger([(before + n) * STEP - late.get(rank, 0.0) for n in range(steps)]) for rank in range(4)
        }
        ledger = MeshLedger(ledgers, ranks)
        assert self._watch.findings(ledger, self._now) is ledger.findings

    def _tell(self, ranks: Sequence[int], mark: str, text: str) -> None:
        assert mark == "◷"
        self.told.append(text)


def _ledger(ages: Sequence[float]) -> RankLedger:
    issued = enumerate(sorted(ages, reverse=True), 1)
    file = "<ipython-input-4-00000001>"
    entries = (Entry(0, n, "barrier", "barrier", (), (), False, age, file, 3) for n, age in issued)
    return RankLedger((GROUP,), tuple(entries), read_at=1e9)


def test_what_is_seen_twice_is_told_once() -> None:
    world = World()
    world.look({2: 0.06})
    assert world.told == []
    world.look({2: 0.06})
    world.look({2: 0.06})
    [text] = world.told
    late = "rank 2 comes 60 ms late to barrier at cell 4, line 3: 62 % of 960 ms were waiting for it"
    assert text == f"{late}: {ADVICE}"


def test_what_another_rank_does_next_is_chance() -> None:
    world = World()
    for rank in (2, 1, 2, 0):
        world.look({rank: 0.06})
    assert world.told == []


def test_little_is_left_to_who_asks() -> None:
    world = World()
    for _ in range(3):
        world.look({1: 0.02})
    assert world.told == []


def test_of_ranks_on_which_another_cell_runs_that_one_tells() -> None:
    world = World()
    for _ in range(3):
        world.look({2: 0.06}, ranks=[0, 1])
    assert world.told == []
    for _ in range(2):
        world.look({2: 0.06}, ranks=[2, 3])
    assert len(world.told) == 1


def test_what_cells_before_have_issued_is_not_told_of_this_one() -> None:
    world = World(steps=5)
    for _ in range(3):
        world.look({1: 0.06}, before=6)
    assert world.told == []


LOADS, COMPUTES = "cell 4 line 2", "cell 4 line 3"
HOW = f": {ADVICE}"
WAITS = "cell 4 line 4, waiting in barrier"


@pytest.mark.parametrize(
    ("places", "told"),
    [
        ({0: {COMPUTES: 9}, 1: {LOADS: 6, COMPUTES: 3}, 2: {LOADS: 4, COMPUTES: 5}}, f"; they are at {LOADS} then"),
        ({0: {COMPUTES: 1}, 1: {LOADS: 4}, 2: {LOADS: 4}}, f"; they are at {LOADS} then"),
        ({0: {COMPUTES: 2, WAITS: 7}, 1: {COMPUTES: 5}, 2: {COMPUTES: 5}}, f"; they are at {COMPUTES} then"),
        ({0: {COMPUTES: 9}, 1: {WAITS: 9}, 2: {COMPUTES: 9}}, HOW),
        ({rank: {COMPUTES: 9} for rank in range(4)}, HOW),
        ({0: {COMPUTES: 9}, 1: {LOADS: 3}}, HOW),
        ({0: {COMPUTES: 9}, 1: {LOADS: 2, COMPUTES: 8}}, HOW),
        ({}, HOW),
    ],
)
def test_it_says_where_they_are_more_often_than_the_others(places: dict[int, dict[str, int]], told: str) -> None:
    world = World(places=places)
    for _ in range(2):
        world.look({1: 0.06, 2: 0.06})
    [text] = world.told
    assert text.partition("waiting for them")[2] == told


def test_a_script_is_told_of_the_terminal() -> None:
    world = World(is_bare=True)
    for _ in range(2):
        world.look({1: 0.06})
    assert world.told[0].endswith(f"were waiting for it: {ADVICE_ON_BARE}")
