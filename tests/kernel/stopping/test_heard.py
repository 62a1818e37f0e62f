"""Ranks that are at work after an interrupt: who has heard it is told apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any

import pytest

from meshbook.kernel.driver import drive
from meshbook.kernel.stopping import pressed
from meshbook.kernel.verdict import interrupted_text
from tests.kernel.pretended import PretendedRun, drive_of


def test_ranks_that_have_heard_and_work_on_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pressed, "_LOOKS", 0.0)
    driven = drive_of(PretendedRun(), is_deaf=True, window=0.1)
    driven.mesh.heard = {1: "", 2: "barrier"}
    steps = driven.steps()
    next(steps)
    steps.send(1)
    told = [(ranks, text.partition(":")[0]) for ranks, text in driven.live.told]
    assert told == [
        ([0], "does not react yet (cell 1 line 0)"),
        ([1, 2], "were interrupted, and work on (cell 1 line 1; cell 1 line 2)"),
    ]
    with pytest.raises(StopIteration):
        while True:
            steps.send(0)
    assert driven.abandoned == (0, 1, 2) and driven.heard == (1, 2)
    assert interrupted_text(driven, {}).startswith(
        "rank 0 did not react and is still busy (rank 0 at cell 1 line 7), "
        "ranks 1-2 were interrupted and are still busy (rank 1 at cell 1 line 8, rank 2 at cell 1 line 9): `%mesh"
    )


def test_who_saves_something_is_not_interrupted_again() -> None:
    """But who hears nothing is, and those that wait for others when nobody saves any more."""
    run = PretendedRun()
    driven = drive_of(run, is_deaf=True, timeout=0.01, impatience=0.02)
    driven.mesh.heard = {1: "", 2: "barrier"}
    steps = driven.steps()
    next(steps)
    until(driven, steps, lambda: driven.released)
    assert driven.mesh.released == [([0], 7)]
    assert ([1, 2], "were interrupted, and work on") in [
        (told[0], told[1].partition(":")[0]) for told in driven.live.told
    ]
    until(driven, steps, lambda: driven.patience.rung == 1)
    run.end(0)
    run.end(1)
    del driven.mesh.heard[1]
    until(driven, steps, lambda: 2 in driven.released)
    assert driven.mesh.released == [([0], 7), ([2], 7)]
    steps.close()


def test_who_saves_for_too_long_is_left_alone() -> None:
    driven = drive_of(PretendedRun(), is_deaf=True, timeout=0.01, impatience=0.01, patience=0.01, saving=0.05)
    driven.mesh.heard = {0: "", 1: "", 2: ""}
    driven.is_background = True
    drive(driven)
    assert (driven.mesh.released, driven.abandoned, driven.heard) == ([], (0, 1, 2), (0, 1, 2))
    assert [told[1] for told in driven.live.told[:-1]] == ["were interrupted, and work on"], "told once"


def test_a_press_is_for_those_that_save_too() -> None:
    driven = drive_of(PretendedRun(), is_deaf=True, timeout=0.01, impatience=0.01)
    driven.mesh.heard = {0: "", 1: "", 2: ""}
    steps = driven.steps()
    next(steps)
    until(driven, steps, lambda: len(driven.live.told) > 0)
    assert driven.mesh.released == []
    steps.send(1)
    assert driven.mesh.released == [([0, 1, 2], 7)]
    steps.close()


def test_who_was_struck_in_a_collective_and_saves_something_is_not_freed_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its ledger has that open still, and others of it have ended."""
    monkeypatch.setattr(pressed, "_LOOKS", 0.0)
    run = PretendedRun()
    driven = drive_of(run, is_deaf=True)
    driven.mesh.heard = {0: "", 2: "barrier"}
    steps = driven.steps()
    next(steps)
    steps.send(1)
    run.end(1)
    for _ in range(3):
        steps.send(0)
    assert driven.mesh.released == []
    driven.mesh.heard[0] = "barrier"
    until(driven, steps, lambda: driven.released)
    assert driven.mesh.released == [([0, 2], 7)]
    steps.close()


class Silent:
    """A user who is asked and gives no answer, but presses."""

    can_ask = True
    is_beside = False

    def __init__(self) -> None:
        self.num_asked = 0

    def ask(self, prompt: str, is_secret: bool = False) -> str:
        self.num_asked += 1
        raise KeyboardInterrupt

    def show(self, text: str) -> None: ...


@pytest.mark.parametrize("heard", [{0: "", 1: "", 2: "barrier"}, {1: "", 2: ""}, {}])
def test_the_user_is_asked_after_the_second_press_only(monkeypatch: pytest.MonkeyPatch, heard: dict[int, str]) -> None:
    """Who does not react may be in C++, and end any moment; the question would stay in front of the cells to come."""
    monkeypatch.setattr(pressed, "_LOOKS", 0.0)
    driven = drive_of(PretendedRun(), is_deaf=True, window=0.05)
    driven.mesh.heard, driven.user = heard, Silent()
    steps = driven.steps()
    next(steps)
    steps.send(1)
    assert {text.rpartition(": ")[2] for _, text in driven.live.told} == {
        "stop interrupts once more, breaks off collectives, and asks what to do"
    }
    started = time.monotonic()
    until(driven, steps, lambda: time.monotonic() - started > 0.2)
    assert (driven.abandoned, driven.user.num_asked) == ((), 0), "they are waited for"
    steps.send(1)
    until(driven, steps, lambda: driven.user.num_asked)
    steps.close()


def until(driven: Any, steps: Generator[float, int, None], is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 5
    while not is_so():
        steps.send(0)
        assert time.monotonic() < deadline, driven.live.told
