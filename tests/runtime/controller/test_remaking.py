"""Actors made again on ranks that came new: what their constructors raise is told to who heals, and to nobody else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime.actor import Actor, endpoint
from meshbook.runtime.controller.remaking import NUM_LOOKS, Vigil
from meshbook.runtime.errors import SupervisionError
from meshbook.runtime.healing import heal
from meshbook.runtime.mesh import roster_of

if TYPE_CHECKING:
    from tests.runtime.conftest import Bench


class Once(Actor):
    """Can be made once with the same file, and then again when that is gone."""

    def __init__(self, file: Path) -> None:
        with file.open("x"):
            pass

    @endpoint
    def ping(self) -> str:
        return "pong"


def test_a_constructor_that_fails_is_told_to_who_heals(bench: Bench, until: Callable[..., Any], tmp_path: Path) -> None:
    procs = bench.up({"rank": 1})
    actors = procs.spawn("once", Once, tmp_path / "mark")
    assert actors.ping.call_one().get(10) == "pong"
    roster = roster_of(procs)
    for is_free in (False, True):
        roster.kill([0])
        until(lambda: roster.dead() == [0])
        if is_free:
            (tmp_path / "mark").unlink()
        failed = heal(procs).failed  # the bench fails a test whose faults reached the hook
        assert list(failed) == ([] if is_free else ["once"])
        if not is_free:
            assert "FileExistsError" in str(failed["once"][0])
            with pytest.raises(SupervisionError, match="FileExistsError"):
                actors.ping.call_one().get(10)
    assert actors.ping.call_one().get(10) == "pong"


def test_who_waits_for_new_ranks_alone_does_not_wait_in_vain() -> None:
    vigil = Vigil(4, frozenset({1, 2}))
    for _ in range(2 * NUM_LOOKS):
        assert not vigil.look({1: ("all_reduce", (1, 2))})
    whole = Vigil(2, frozenset({0, 1}))
    assert not any(whole.look({0: ("barrier", None)}) for _ in range(2 * NUM_LOOKS))


def test_who_gets_on_does_not_wait_in_vain() -> None:
    vigil = Vigil(4, frozenset({1}))
    for turn in range(4 * NUM_LOOKS):
        assert not vigil.look({1: (("barrier", "all_reduce")[turn % 2], None)})
    looks = [vigil.look({1: ("barrier", None)}) for _ in range(2 * NUM_LOOKS)]
    assert looks.count({1: "barrier"}) == 2  # and is freed again where it waits once more
