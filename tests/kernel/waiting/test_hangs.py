"""When a cell that hangs in a collective is told, and when it is given up: without ranks, time is an argument."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from meshbook.kernel.run import Progress
from meshbook.kernel.waiting.hangs import ADVICE, HangWatch
from meshbook.kernel.waiting.ledger import Finding


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
        self.moving: list[tuple[list[int], str]] = []
        self.places: dict[int, str] = {}
        self.all_wait = False
        self._now = 0.0
        run: Any = self.run
        self._watch = HangWatch(
            run,
            self._look,
            lambda: self.dead,
            self._tell,
            place_of=lambda rank: self.places.get(rank, ""),
            done=lambda: {0, 1, 2} - {*self.run.owing},
            all_wait=lambda: self.all_wait,
        )

    def _look(self, ranks: Sequence[int]) -> Sequence[Finding]:
        self.looks.append(self._now - self.run.started)
        return self.findings

    def _tell(self, ranks: Sequence[int], mark: str, text: str) -> None:
        assert mark in "≠▶"
        (self.told if mark == "≠" else self.moving).append((list(ranks), text))

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


def test_looks_go_on_at_a_calm_pace() -> None:
    world = World()
    world.pass_time(400)
    assert [round(look, 1) for look in world.looks[:3]] == [3.0, 6.2, 9.4]
    assert len(world.looks) > 120


def test_a_standstill_of_all_is_looked_at_at_once_and_once() -> None:
    world = World()
    world.findings = [Finding("rank 1 called all_gather; ranks 0,2 called all_reduce", (1,), (0, 1, 2), 1.1)]
    world.pass_time(1)
    world.all_wait = True
    world.pass_time(1.2)
    assert [round(look, 1) for look in world.looks] == [1.1] and len(world.told) == 1
    world.pass_time(9)
    assert [round(look, 1) for look in world.looks[1:]] == [4.3, 7.5] and len(world.told) == 1


def test_who_reduces_much_is_seen_to_wait_again_and_again_and_seldom_looked_at() -> None:
    world = World()
    for tenth in range(1, 100):
        world.all_wait = tenth % 2 == 1
        world.pass_time(tenth / 10)
    assert len(world.looks) == 6


def test_who_waits_for_a_rank_that_has_done_its_part_is_told_sooner() -> None:
    world = World()
    world.run.owing, world.findings = [0, 1], [WAITING]
    world.pass_time(1.5)
    assert [round(look, 1) for look in world.looks] == [1.1] and len(world.told) == 1
    world.pass_time(9.9)
    assert [round(look, 1) for look in world.looks[1:]] == [3.0, 6.2, 9.3] and len(world.told) == 1


def test_who_waits_for_one_that_may_come_is_not_told_sooner_because_another_is_done() -> None:
    world = World()
    world.run.owing = [0, 1]
    world.findings = [Finding("rank 0 waits in barrier; rank 1 has issued none", odd=(1,), waiting=(0,), seconds=2.0)]
    world.pass_time(2.9)
    assert len(world.looks) == 1 and not world.told
    world.pass_time(3.1)
    assert len(world.told) == 1


def test_who_waits_only_since_the_other_was_done_is_looked_at_again() -> None:
    world = World()
    world.pass_time(20)
    del world.looks[:]
    world.run.owing, world.findings = [0, 1], [replace(WAITING, seconds=0.4)]
    world.pass_time(21.2)
    assert not world.told
    world.findings = [WAITING]
    world.pass_time(22)
    assert len(world.told) == 1


def hang(number: int, seconds: float = 2.0) -> Finding:
    return Finding(f"ranks 0-1 wait in barrier #{number}; rank 2 has not issued it", (2,), (0, 1), seconds)


def test_a_hang_that_begins_late_is_told_soon() -> None:
    world = World()
    world.pass_time(300)
    world.findings = [hang(7)]
    world.pass_time(303.5)
    assert len(world.told) == 1


def test_one_that_is_too_young_is_looked_at_again_when_it_is_old_enough() -> None:
    world = World()
    world.findings = [hang(7, seconds=0.5)]
    world.pass_time(3.1)
    assert not world.told
    world.findings = [hang(7, seconds=1.2)]
    world.pass_time(3.8)
    assert len(world.told) == 1


def test_who_waits_at_every_checkpoint_is_told_ever_more_rarely() -> None:
    world = World()
    for number in range(100):
        world.findings = [hang(number, seconds=7.0)]
        world.pass_time(10.0 * (number + 1))
    assert len(world.told) == 3  # after 1, 2 and 4 seconds
    world.findings = [hang(100, seconds=8.0)]
    world.pass_time(1010)
    assert len(world.told) == 4


def test_that_they_go_on_is_told_when_it_is_sure() -> None:
    world = World()
    world.findings = [hang(7)]
    world.pass_time(6)
    world.findings = []  # one look at which ranks have not answered in time tells nothing
    world.pass_time(6.2)
    world.findings = [hang(7, seconds=8.0)]
    world.pass_time(9)
    assert not world.moving
    world.findings = []
    world.pass_time(10.4)
    world.pass_time(60)
    assert world.moving == [([0, 1], "go on after 9 s")]


def test_a_collective_that_some_do_not_issue_is_told_once() -> None:
    world = World()
    world.findings = [WAITING]
    world.pass_time(60)
    assert world.told == [([0, 1], f"{WAITING.text}: {ADVICE}")]
    assert not world.run.progress.missed


def test_where_those_are_that_do_not_come_is_told() -> None:
    world = World()
    world.places = {0: "cell 5 line 2, waiting in barrier", 2: "cell 5 line 7"}
    world.findings = [WAITING]
    world.pass_time(4)
    assert world.told == [([0, 1], f"{WAITING.text}; rank 2 is at cell 5 line 7: {ADVICE}")]


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
