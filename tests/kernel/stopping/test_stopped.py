"""Ranks that the user stopped one by one: who is told of, who is freed, who is left alone. Time is an argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from meshbook.kernel.outcome import Failure, Outcome
from meshbook.kernel.run import Progress
from meshbook.kernel.stopping.stopped import PAUSE, StopWatch, stop, stop_watch, stopped
from meshbook.kernel.waiting.ledger import Finding
from tests.kernel.pretended import PretendedMesh, PretendedRun


class World:
    """A run on ranks 0 to 3 and what is done to it."""

    def __init__(self) -> None:
        self.owing = [0, 1, 2, 3]
        self.progress = Progress()
        self.findings: list[Finding] = []
        self.freed: list[tuple[list[int], bool]] = []
        self.told: list[tuple[list[int], str]] = []
        run: Any = self
        self.watch = StopWatch(run, lambda ranks: self.findings, self._free, self._tell)

    def _free(self, ranks: Sequence[int], is_hard: bool) -> None:
        self.freed.append((list(ranks), is_hard))

    def _tell(self, ranks: Sequence[int], mark: str, text: str) -> None:
        self.told.append((list(ranks), f"{mark} {text}"))

    def end(self, rank: int, error: str = "KeyboardInterrupt") -> None:
        self.owing.remove(rank)
        self.progress.failed.append(rank)
        self.progress.outcomes[rank] = msgspec.msgpack.encode(Outcome(failure=Failure(error, "", (), "")))

    def stop(self, *ranks: int) -> None:
        run: Any = self
        stop([run], ranks, "interrupted from the dashboard")


def test_nothing_is_done_while_nobody_is_stopped() -> None:
    world = World()
    world.findings = [Finding("rank 0 waits in barrier; rank 1 has issued none", odd=(1,), waiting=(0,))]
    world.end(1, "ValueError")
    world.watch(9.0)
    assert world.told == [] == world.freed


def test_who_is_stopped_is_told_once_and_who_waits_for_it_is_freed() -> None:
    world = World()
    world.stop(1)
    world.findings = [
        Finding("rank 0 waits in barrier; rank 1 has issued none", odd=(1,), waiting=(0,)),
        Finding("rank 2 waits in barrier; rank 3 has issued none", odd=(3,), waiting=(2,)),
    ]
    world.watch(1.0)
    assert world.told == [] == world.freed  # it has not reacted yet
    world.end(1)
    world.watch(2.0)
    assert world.told[0] == ([1], "◌ interrupted from the dashboard; ranks 0,2-3 go on")
    assert world.freed == [([0], False)]
    world.watch(2.0 + PAUSE / 2)
    world.watch(2.0 + PAUSE)
    assert world.freed == [([0], False), ([0], True)]  # it did not react: its collectives
    world.end(0, "RuntimeError")
    world.watch(3.0)
    assert len(world.told) == 2 and len(world.freed) == 2
    assert stopped(world.progress) == {
        0: "waited for rank 1, which was interrupted",
        1: "interrupted from the dashboard",
    }


def test_who_was_freed_and_saves_something_is_not_interrupted_again() -> None:
    run: Any = PretendedRun()
    mesh: Any = PretendedMesh(run, is_deaf=True)
    stop([run], [1], "interrupted from the dashboard")
    run.end(1, failed=True, outcome=msgspec.msgpack.encode(Outcome(failure=Failure("KeyboardInterrupt", "", (), ""))))
    finding = Finding("ranks 0,2 wait in barrier; rank 1 has issued none", odd=(1,), waiting=(0, 2))
    watch = stop_watch(mesh, run, lambda ranks: [finding], lambda *_: None)
    watch(1.0)
    assert mesh.interrupted == [([0, 2], 7)]
    mesh.heard = {0: ""}
    watch(1.0 + PAUSE)
    assert mesh.released == [([2], 7)]
    run.end(2)
    watch(1.0 + 2 * PAUSE)
    assert mesh.released == [([2], 7)], "nobody is left for that"


def test_who_was_stopped_and_failed_otherwise_has_failed() -> None:
    world = World()
    world.stop(1, 2)
    world.end(1, "ValueError")
    world.owing.remove(2)  # it was done, and well
    assert stopped(world.progress) == {}
    world.watch(1.0)
    assert world.told == []


def test_only_ranks_that_still_work_are_stopped() -> None:
    world = World()
    world.owing.remove(2)
    world.stop(1, 2)
    assert list(world.progress.stopped) == [1]


def test_who_is_stopped_too_does_not_go_on() -> None:
    world = World()
    world.stop(0, 1, 2, 3)
    world.end(0)
    world.watch(1.0)
    assert world.told == [], "the others have not answered yet"
