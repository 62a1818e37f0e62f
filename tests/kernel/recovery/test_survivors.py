"""Who is left when others die in collectives: the next one among the survivors works."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from meshbook.kernel.mesh import Mesh
from tests.chaos.driver import deadline
from tests.chaos.operations import Collect, Heal, KillDuring, Leave, Operation
from tests.chaos.world import World

pytestmark = [pytest.mark.slow, pytest.mark.real]

ROUND: tuple[Operation, ...] = (
    Leave(ranks=(0, 1, 2, 3), victims=(3,), wait="all_reduce", value=3, code=0),
    KillDuring(ranks=(0, 1, 2), victims=(2,), wait="barrier", value=7, after=0.001),
    Collect(ranks=(0, 1), size=1, axis="tp"),
    Heal(replay="none"),
)


def test_who_waits_for_a_dead_rank_holds_up_no_other_group(engine: str, tmp_path: Path) -> None:
    """A lazy group of gloo waits in the store for its peers: with one connection for all groups, `Collect` hung."""
    with Mesh.up(
        "survivors", {"dp": 2, "tp": 2}, engine=engine, path=sys.path, env={"CHAOS_FLAGS": str(tmp_path)}
    ) as mesh:
        world = World(mesh, tmp_path)
        for operation in ROUND * 4:
            with deadline(20.0):
                world.do(operation)
