"""Ranks that have not begun a cell: when it is told, and that they have begun it. Time is an argument."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from meshbook.kernel.waiting.queued import QueueWatch


def test_who_has_not_begun_is_told_once_and_so_is_that_it_has() -> None:
    run: Any = SimpleNamespace(started=100.0, owing=[0, 1, 2])
    behind = {1: "cell 4", 2: "cell 4"}
    told: list[tuple[list[int], str, str]] = []

    def tell(ranks: Sequence[int], mark: str, text: str) -> None:
        told.append((list(ranks), mark, text))

    watch = QueueWatch(run, lambda: behind, tell)
    watch(100.9)
    assert not told
    watch(101.0)
    watch(102.0)
    assert told == [([1, 2], "◌", "have not begun this cell, and still work on cell 4: stop takes this one back")]
    del behind[1]
    watch(107.0)
    assert len(told) == 1, "it may be about to say that it does not begin"
    watch(108.0)
    watch(109.0)
    assert told[1:] == [([1], "▶", "has begun it after 7 s")]
    behind.clear()
    run.owing = [0, 1]  # it is done as well: there is nothing to tell
    watch(109.5)
    watch(110.0)
    assert len(told) == 2
