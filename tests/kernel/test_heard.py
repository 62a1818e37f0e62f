"""Ranks that are at work after an interrupt: who has heard it is told apart."""

from __future__ import annotations

import pytest

from meshbook.kernel import drive as drive_module
from meshbook.kernel.verdict import interrupted_text
from tests.kernel.pretended import PretendedRun, drive_of


def test_ranks_that_have_heard_and_work_on_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drive_module, "_OFFERED_AFTER", 0.0)
    driven = drive_of(PretendedRun(), is_deaf=True, window=0.1)
    driven.mesh.who_heard = [1, 2]
    steps = driven.steps()
    next(steps)
    steps.send(1)
    told = [(ranks, text.partition(":")[0]) for ranks, text in driven.live.told]
    assert told == [([0], "does not react yet"), ([1, 2], "were interrupted, and work on")]
    with pytest.raises(StopIteration):
        while True:
            steps.send(0)
    assert driven.abandoned == (0, 1, 2) and driven.heard == (1, 2)
    assert interrupted_text(driven, {}).startswith(
        "rank 0 did not react and is still busy (rank 0 at cell 1 line 7), "
        "ranks 1-2 were interrupted and are still busy (rank 1 at cell 1 line 8, rank 2 at cell 1 line 9): `%mesh"
    )
