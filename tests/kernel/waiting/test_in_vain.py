"""Whether all that a failed cell still waits for wait themselves for what will not come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from meshbook.kernel.waiting.hangs import A_RANK
from meshbook.kernel.waiting.in_vain import EVERY, FIRST, VainWatch, all_in_vain
from meshbook.kernel.waiting.ledger import Finding
from tests.kernel.pretended import PretendedRun


def finding(waiting: Sequence[int], odd: Sequence[int], seconds: float = 1.0) -> Finding:
    return Finding("", tuple(odd), tuple(waiting), seconds)


@pytest.mark.parametrize(
    ("findings", "owing", "is_vain"),
    [
        ([finding([0, 2], [1])], [0, 2], True),
        ([finding([0], [1]), finding([2], [1])], [0, 2], True),
        ([finding([0], [2]), finding([2], [1])], [0, 2], True),  # behind another
        ([finding([0], [2]), finding([2], [3]), finding([3], [1])], [0, 2, 3], True),
        ([finding([0, 2], [1, 3])], [0, 2, 3], False),  # rank 3 computes
        ([finding([0], [1])], [0, 2], False),
        ([finding([0], [2]), finding([2], [0])], [0, 2], False),  # for one another: a failure has nothing to do with it
        ([finding([0, 2], [1], 0.1)], [0, 2], False),  # what rank 1 had sent may be on its way
        ([], [0], False),
        ([finding([0], [1])], [], False),
    ],
)
def test_all_must_wait_for_ranks_that_have_ended(findings: list[Finding], owing: list[int], is_vain: bool) -> None:
    assert all_in_vain(findings, owing, ended=[1]) is is_vain


def test_it_looks_a_moment_after_the_failure_and_then_at_a_calm_pace() -> None:
    run: Any = PretendedRun()
    run.end(1, failed=True)
    looks: list[list[int]] = []

    def look(ranks: Sequence[int]) -> list[Finding]:
        looks.append(list(ranks))
        return [finding([0, 2], [1], seconds=0.1 * len(looks))]

    watch = VainWatch(run, look, tuple)
    pause = EVERY + 2 * A_RANK
    times = [0.0, FIRST - 0.01, FIRST, FIRST + pause - 0.01, FIRST + pause + 0.01]
    assert [watch.sees(50 + each, each) for each in times] == [False, False, False, False, True]
    assert looks == [[0, 2], [0, 2]]


def test_the_dead_of_the_mesh_will_not_come_either() -> None:
    run: Any = PretendedRun()
    findings = [finding([0, 1, 2], [9])]
    assert not VainWatch(run, lambda ranks: findings, tuple).sees(50.0, FIRST)
    assert VainWatch(run, lambda ranks: findings, lambda: [9]).sees(50.0, FIRST)


def test_it_does_not_look_when_all_have_ended() -> None:
    run: Any = PretendedRun()
    for rank in list(run.owing):
        run.end(rank, failed=True)
    assert not VainWatch(run, lambda ranks: pytest.fail("looked"), tuple).sees(50.0, 1.0)
