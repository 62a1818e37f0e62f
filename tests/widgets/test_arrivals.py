"""The table of a running cell: late, seldom, and gone when the result is there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from meshbook.kernel.run import Progress, Run
from meshbook.runtime.wire.log import RankLog
from meshbook.widgets.arrivals import APPEARS_AFTER, PERIOD, Arrivals, ends, standings
from tests.widgets.stages import Page

RESULT = {"text/plain": "6", "text/html": "<b>6</b>"}


class Cell:
    """A run on four ranks that began at 0, and its table."""

    def __init__(self) -> None:
        self.page = Page()
        self.still: dict[int, tuple[str, float]] = {}
        self.logs = {rank: RankLog() for rank in range(4)}
        self.run = SimpleNamespace(
            started=0.0,
            ranks=(0, 1, 2, 3),
            owing=[0, 1, 2, 3],
            call=7,
            progress=Progress(),
            sightings=SimpleNamespace(still=lambda rank: self.still.get(rank, ("", 0.0))),
            roster=SimpleNamespace(logs=self.logs),
        )
        self.table = Arrivals(cast("Any", self.page), cast(Run, self.run))

    def answer(self, *ranks: int) -> None:
        for rank in ranks:
            self.run.owing.remove(rank)
            self.run.progress.seconds[rank] = 0.4

    def close(self) -> None:
        for log in self.logs.values():
            log.close()


@pytest.fixture
def cell() -> Any:
    made = Cell()
    yield made
    made.close()


def test_a_cell_that_is_soon_done_has_its_result_and_nothing_else(cell: Cell) -> None:
    cell.table(APPEARS_AFTER - 0.01)
    cell.answer(0, 1, 2, 3)
    cell.table.settle(RESULT)
    assert cell.page.blocks == ["[6]\n"] and cell.page.num_messages == 1


def test_it_is_published_seldom_and_becomes_the_result(cell: Cell) -> None:
    for tick in range(200):  # ten seconds
        cell.table(tick * 0.05)
    assert cell.page.blocks == ["[0 of 4 ranks done · 9.5 s]\n"]
    assert cell.page.num_messages <= 10 / PERIOD
    cell.table.settle(RESULT)
    assert cell.page.blocks == ["[6]\n"]


def test_the_result_stands_below_what_came_after_the_table(cell: Cell) -> None:
    cell.page.write("before")
    cell.table(1.0)
    cell.page.write("after")
    cell.answer(1)
    cell.table(2.0)
    assert cell.page.blocks == ["before", "[1 of 4 ranks done · 2.0 s]\n", "after"]
    cell.table.settle(RESULT)
    assert cell.page.blocks == ["before", "[]\n", "after", "[6]\n"]


def test_of_a_cell_without_a_value_no_table_is_left(cell: Cell) -> None:
    cell.table(1.0)
    cell.table.settle(None)
    assert cell.page.blocks == ["[]\n"]


def test_it_tells_what_working_ranks_said_last_in_this_run() -> None:
    cell = Cell()
    cell.logs[0].append(6, "stdout", "of another run\n")
    cell.logs[0].append(7, "stderr", "a warning\n")
    cell.logs[1].append(7, "stdout", "step 1\nstep 2\n")
    cell.logs[2].append(7, "stdout", "10%\r20%\r\x1b[31m30%")
    cell.answer(3)
    html = str(cell.table._bundle(1.5)["text/html"])
    assert "<td>works</td><td>step 2</td><td>1.5 s</td>" in html and "<td>30%</td>" in html
    assert "another" not in html and "<td>done</td><td></td><td>0.40 s</td>" in html
    cell.close()


def test_it_tells_where_those_are_that_do_not_move(cell: Cell) -> None:
    cell.still = {1: ("cell 5 line 3", 3.1), 2: ("cell 5 line 4", 1.0)}
    html = str(cell.table._bundle(4.0)["text/html"])
    assert "<td>works at cell 5 line 3</td>" in html and "line 4" not in html


def test_of_a_thousand_ranks_those_that_did_not_go_well_are_told_first() -> None:
    progress = Progress(failed=[700], lost={3: "died: SIGKILL\n  words"}, gone={3})
    found = standings(range(1024), [5, 900], ends(progress), {700: 1.0, 8: 0.5}, {}, 42.0)
    assert [(each.ranks, each.state) for each in found[:3]] == [((3,), "lost"), ((700,), "failed"), ((5, 900), "works")]
    assert found[0].line == "died: SIGKILL" and found[2].time == "42.0 s"
    assert len(found) == 4 and len(found[3].ranks) == 1020


def test_of_those_that_live_it_does_not_say_that_they_are_lost() -> None:
    lost = {0: "rank 0 failed: DecodeError", 1: "rank 1 had not begun it", 2: "rank 2 died: SIGKILL"}
    ended = ends(Progress(lost=lost, unclear={0}, gone={2}))
    assert [ended[rank][0] for rank in range(3)] == ["failed", "not done", "lost"]
