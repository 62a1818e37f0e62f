"""Actors that are to end while they do what nothing cancels: who stops them, or waits in their queue, is told."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime import Channel
from meshbook.runtime.errors import ActorError, SupervisionError
from tests.runtime.families import AsyncHeld, AsyncQuitter, Held, Leaver, Quitter

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage


@pytest.mark.slow
def test_one_that_hangs_is_left_and_cleans_up_if_it_ever_goes_on(stage: Stage, tmp_path: Path) -> None:
    hung: list[tuple[Any, ...]] = []
    for number, (kind, in_constructor) in enumerate(itertools.product([Held, AsyncHeld], [True, False])):
        gate = tmp_path / f"gate{number}"
        os.mkfifo(gate)
        port, told = Channel[str].open()
        actor = stage.one(kind, port, str(gate), in_constructor)
        held = None if in_constructor else actor.hold.call_one()
        hung.append((gate, told, held, [actor.ok.call_one() for _ in range(2)], actor))
        assert told.recv().get(10) == "waits"
    for stopping in [actor.stop() for *_, actor in hung]:
        stopping.get(10)
    for gate, told, held, late, _ in hung:
        for call in late:
            with pytest.raises(SupervisionError, match="stopped"):
                call.get(10)
        gate.open("w").close()
        assert told.recv().get(10) == "clean"
        assert held is None or held.get(10) is None


def test_one_whose_cleanup_exits_has_ended(stage: Stage) -> None:
    actor = stage.one(Leaver)
    assert actor.ok.call_one().get(10) == "ok"
    actor.stop().get(10)


@pytest.mark.parametrize("kind", [Quitter, AsyncQuitter])
def test_an_answer_that_exits_as_it_is_pickled_is_an_error(stage: Stage, kind: type[Any]) -> None:
    actor = stage.one(kind)
    with pytest.raises(ActorError, match="SystemExit: 3"):
        actor.answer.call_one().get(10)
    assert actor.ok.call_one().get(10) == "ok"


def test_a_callback_that_exits_fails_its_actor(stage: Stage) -> None:
    actor = stage.one(AsyncQuitter)
    actor.quit.call_one().get(10)
    assert "SystemExit: 3" in stage.faults.get(timeout=10).report()
    with pytest.raises(SupervisionError, match="SystemExit: 3"):
        actor.ok.call_one().get(10)
