"""Driving a cell while ranks of it are stopped in a debugger."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from meshbook.kernel.debug.converse import pass_over
from meshbook.kernel.debug.events import Kind, Stop
from meshbook.kernel.debug.sitting import announce
from tests.kernel.pretended import PretendedMesh, PretendedRun, drive_of


def test_time_in_the_debugger_panel_does_not_count() -> None:
    driven = drive_of(PretendedRun(), timeout=0.01)
    driven.mesh.desk.held = frozenset({1})
    steps, deadline = driven.steps(), time.monotonic() + 0.02
    next(steps)
    while time.monotonic() < deadline:
        steps.send(0)
    assert driven.patience.reason == ""
    driven.mesh.desk.held = frozenset()
    with pytest.raises(StopIteration):
        while True:
            steps.send(0)
    assert driven.patience.reason == "timeout"


@pytest.mark.parametrize(
    ("kind", "place", "told"),
    [("live", "cell 5 line 2", "stopped at cell 5 line 2"), ("post-mortem", "", "stopped after its error, and this")],
)
def test_without_a_user_who_stops_goes_on_and_the_cell_says_so(kind: Kind, place: str, told: str) -> None:
    driven = drive_of(PretendedRun())
    desk = driven.mesh.desk
    desk.stops.take(Stop(1, 1, 1, kind, "ipdb> ", "", place))
    desk.is_wanted = True
    steps = driven.steps()
    next(steps)
    steps.send(0)
    assert desk.left == [[1]]
    assert f"passed over: {told}" in str(driven.live.told)
    steps.close()


def test_ranks_that_stop_at_one_place_are_passed_over_in_one_line() -> None:
    mesh, told = PretendedMesh(PretendedRun()), list[tuple[list[int], str]]()
    for rank, line in [(2, 3), (0, 3), (1, 8)]:
        mesh.desk.stops.take(Stop(rank, 1, 1, "live", "ipdb> ", "", f"cell 5 line {line}"))
    pass_over(cast("Any", mesh.desk), lambda ranks, mark, line: told.append((list(ranks), line)), "nobody is there")
    assert told == [
        ([0, 2], "passed over: stopped at cell 5 line 3, and nobody is there"),
        ([1], "passed over: stopped at cell 5 line 8, and nobody is there"),
    ]
    assert sorted(mesh.desk.left) == [[0], [1], [2]]


def test_ranks_that_stop_at_one_place_in_the_background_are_told_in_one_line() -> None:
    kinds: dict[int, Kind] = {2: "live", 1: "input", 0: "live"}
    stops = [Stop(rank, 1, 1, kind, "", "", "cell 5 line 3") for rank, kind in kinds.items()]
    mesh, told = SimpleNamespace(desk=SimpleNamespace(new_stops=lambda: stops)), list[tuple[list[int], str]]()
    announce(cast("Any", mesh), cast("Any", "a user"), lambda ranks, mark, line: told.append((list(ranks), line)))
    assert told == [
        ([0, 2], "are stopped in the debugger at cell 5 line 3: `%mesh debug` answers it"),
        ([1], "asks for input at cell 5 line 3: `%mesh debug` answers it"),
    ]


def test_who_sits_at_a_prompt_when_ranks_are_interrupted_is_let_go() -> None:
    driven = drive_of(PretendedRun(), is_deaf=True)
    steps = driven.steps()
    next(steps)
    driven.mesh.desk.stops.take(Stop(2, 1, 1, "live", "ipdb> "))
    steps.send(1)
    assert driven.mesh.desk.left == [[0, 1, 2]]
    steps.close()
