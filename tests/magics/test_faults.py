"""What `%mesh interrupt` tells of ranks that say little. Without processes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from meshbook.magics import faults
from meshbook.magics.grammar import Interrupt


class Busy:
    """Actors work on ranks 1-3: 1 ends as it is interrupted, 2 is at work on what no interrupt ends, 3 is silent."""

    def __init__(self) -> None:
        self.roster = SimpleNamespace(
            states={r: SimpleNamespace(rank=r, open_calls={7}, main_calls=set()) for r in (1, 2, 3)}
        )

    def running(self) -> list[Any]:
        return []

    def states(self) -> dict[int, str]:
        return {0: "idle"} | dict.fromkeys((1, 2, 3), "busy")

    def interrupt(self, ranks: Any) -> dict[int, bool]:
        return dict.fromkeys(ranks, False)

    def interrupt_actors(self, ranks: Any) -> dict[int, list[str]]:
        self.roster.states[1].open_calls.clear()
        return {0: [], 1: ["trainer.step"], 2: []}


def test_who_did_not_say_what_it_works_on_may_still_be_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(faults, "mended_text", lambda mesh: "")
    monkeypatch.setattr(faults, "_MOMENT", 0)
    book: Any = SimpleNamespace(chosen_of_all=lambda name, selector: (Busy(), (0, 1, 2, 3)))
    faults.interrupt(book, Interrupt())
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "interrupted: rank 1 in trainer.step"
    assert told[1].startswith("rank 3 is asked to stop, and does not react yet: ")
    assert told[2].startswith("actors on rank 2 go on, in what no interrupt ends: ")
    assert len(told) == 3
