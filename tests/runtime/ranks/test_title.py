"""What other programs of the machine call a rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest

from meshbook.runtime.controller.resize import resize_roster
from meshbook.runtime.mesh import ProcMesh

if TYPE_CHECKING:
    from tests.runtime.conftest import Bench

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.skipif(not psutil.LINUX, reason="Linux alone allows it")]


def titles(mesh: ProcMesh) -> list[tuple[str, str]]:
    processes = [psutil.Process(state.pid) for _, state in sorted(mesh.roster.states.items())]
    return [(process.name(), " ".join(process.cmdline()).rstrip()) for process in processes]


def test_ranks_of_one_zygote_have_titles_of_their_own(local: Bench) -> None:
    mesh = local.up({"dp": 1, "tp": 2})
    assert titles(mesh) == [("rank 0", "meshbook rank 0 (dp=0 tp=0)"), ("rank 1", "meshbook rank 1 (dp=0 tp=1)")]


def test_their_environment_can_still_be_read(local: Bench) -> None:
    mesh = local.up({"rank": 1})
    assert titles(mesh) == [("rank 0", "meshbook rank 0")]
    assert "PATH" in psutil.Process(mesh.roster.states[0].pid).environ()


def test_who_is_renumbered_has_another_one(local: Bench) -> None:
    mesh = local.up({"dp": 2, "tp": 2})
    resize_roster(mesh.roster, {"dp": 2, "tp": 1}, 30)
    assert titles(mesh) == [("rank 0", "meshbook rank 0 (dp=0 tp=0)"), ("rank 1", "meshbook rank 1 (dp=1 tp=0)")]
