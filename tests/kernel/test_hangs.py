"""When a cell that hangs in a collective is told, and when it is given up: without ranks, time is an argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshbook.kernel.hangs import ADVICE, LONGEST_PAUSE, HangWatch
from meshbook.kernel.ledger import Finding
from meshbook.kernel.run import Progress


class PretendedRun:
    def __init__(self, owing: Sequence[int]) -> None:
        self.started = 100.0
        self.owing = list(owing)
        self.progress = Progress()

    def miss(self, ranks: set[int]) -> None:
        self.progress.missed = ranks


class World:
    """A run on ranks 0 to 2, what the ledgers say of it, and what is told."""

    def __init__(self, dead: Sequence[int] = ()) -> None:
        self.run = PretendedRun([0, 1, 2])
        self.findings: list[Finding] = []
        self.dead = list(dead)
        self.looks: list[float] = []
        self.told: list[tuple[list[int], str]] = []
        self._now = 0.0
        run: Any = self.run
        self._watch = HangWatch(run, self._look, lambda: self.dead, self._tell)

    def _look(self, ranks: Sequence[int]) -> Sequence[Finding]:
        self.looks.append(self._now - self.run.started)
        return self.findings

    def _tell(self, ranks: Sequence[int], mark: str, text: str) -> None:
        assert mark == "≠"
        self.told.append((list(ranks), text))

    def pass_time(self, seconds: float) -> None:
        """Call the watch twenty times a second, up to this time after the start."""
        while self._now < self.run.started + seconds:
            self._now = max(self._now, self.run.started) + 0.05
            self._watch(self._now)

    def skip_time(self, seconds: float) -> None:
        """Do not call it up to this time after the start."""
        self._now = self.run.started + seconds


WAITING = Finding("ranks 0-1 wait in barrier; rank 2 has issued none", odd=(2,), waiting=(0, 1), seconds=2.0)


def test_a_quick_cell_is_never_looked_at() -> None:
    world = World()
    world.pass_time(2.9)
    assert world.looks == []


def test_looks_become_rare_but_do_not_end() -> None:
    world = World()
    world.pass_time(400)
    pauses = [after - before for before, after in zip(world.looks, world.looks[1:], strict=False)]
    assert [round(look) for look in world.looks[:4]] == [3, 9, 21, 45]
    assert all(pause < LONGEST_PAUSE + 0.1 for pause in pauses) and len(world.looks) > 8


def test_a_collective_that_some_do_not_issue_is_told_once() -> None:
    world = World()
    world.findings = [WAITING]
    world.pass_time(60)
    assert world.told == [([0, 1], f"{WAITING.text}: {ADVICE}")]
    assert not world.run.progress.missed


def test_ranks_that_were_held_at_a_prompt_have_a_moment_to_come() -> None:
    world = World()
    world.pass_time(1)
    world.skip_time(20)  # the user is at a prompt
    world.pass_time(20.9)
    assert world.looks == []
    world.pass_time(21.5)
    assert len(world.looks) == 1


def test_who_is_rarely_called_looks_all_the_same() -> None:
    world = World()
    for seconds in range(2, 60, 2):
        world.skip_time(seconds)
        world.pass_time(seconds + 0.01)
    assert len(world.looks) >= 3


def test_one_that_is_young_or_of_others_is_not() -> None:
    world = World()
    world.run.owing = [2]
    world.findings = [WAITING, Finding("just now", (1,), (2,), seconds=0.2)]
    world.pass_time(60)
    assert world.told == []


def test_who_waits_for_a_dead_rank_waits_in_vain() -> None:
    world = World(dead=[3])
    world.findings = [Finding("ranks 0-2 wait in barrier; rank 3 is dead", odd=(3,), waiting=(0, 1, 2), seconds=1.0)]
    world.pass_time(1.2)
    assert world.told == [([0, 1, 2], "ranks 0-2 wait in barrier; rank 3 is dead and will not come")]
    assert world.run.progress.missed == {3}


def test_a_rank_that_dies_meanwhile_is_missed_at_the_next_look() -> None:
    world = World()
    world.findings = [WAITING]
    world.pass_time(4)
    assert not world.run.progress.missed
    world.dead.append(2)
    world.pass_time(10)
    assert world.run.progress.missed == {2}
