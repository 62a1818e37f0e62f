"""What comes after the end of a cell is gathered for a moment."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from meshbook.kernel.output.afterwards import MOMENT, Afterwards
from meshbook.kernel.ranks.comms import CommMessage
from tests.kernel.pretended import PretendedRun


class Told(list[list[Any]]):
    """What was told, in pieces."""

    kept_back: float | None = None

    def late(self, said: Any, now: float, is_last: bool = False) -> float | None:
        self.append(list(said))
        return None if is_last else self.kept_back


@pytest.fixture
def run() -> PretendedRun:
    return PretendedRun()


def test_lines_of_one_moment_are_told_together(run: PretendedRun) -> None:
    told, due = Told(), list[tuple[float, Callable[[], object]]]()
    afterwards = Afterwards(cast("Any", run), told, lambda seconds, call: due.append((seconds, call)))
    for moment in range(2):
        for rank in (0, 1):
            run.said = [(rank, f"beat {moment}")]
            afterwards()
        [(seconds, tell)] = due
        assert seconds == MOMENT and len(told) == moment
        due.clear()
        tell()
    assert told == [[(0, "beat 0"), (1, "beat 0")], [(0, "beat 1"), (1, "beat 1")]]


def test_a_widget_and_the_end_of_the_mesh_wait_for_nobody(run: PretendedRun) -> None:
    told, due = Told(), list[Callable[[], object]]()
    afterwards = Afterwards(cast("Any", run), told, lambda seconds, call: due.append(call))
    moved = CommMessage("comm_msg", "slider", {})
    for said in ((0, "line"), (1, moved)):
        run.said = [said]
        afterwards()
    run.roster = SimpleNamespace(is_stopped=True)
    run.said = [(0, "good-bye")]
    afterwards()
    assert told == [[(0, "line"), (1, moved)], [(0, "good-bye")]]
    [tell] = due
    tell()
    assert len(told) == 2, "it was told before its time"


def test_who_keeps_something_back_is_called_again(run: PretendedRun) -> None:
    told, due = Told(), list[tuple[float, Callable[[], object]]]()
    afterwards = Afterwards(cast("Any", run), told, lambda seconds, call: due.append((seconds, call)))
    run.said = [(0, "a picture")]
    told.kept_back = 0.2
    afterwards()
    due.pop()[1]()
    [(seconds, tell)] = due
    assert seconds == 0.2
    run.roster = SimpleNamespace(is_stopped=True)  # it is asked a last time then
    tell()
    tell()
    assert told == [[(0, "a picture")], []] and len(due) == 1
