"""Who is told of which death, once."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import closing

import pytest

from meshbook.kernel.mesh import Mesh
from meshbook.magics.obituary import Obituaries
from meshbook.runtime import session as sessions
from meshbook.runtime.controller.regroup import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.real]


def test_of_a_rank_that_has_not_answered_the_end_is_still_told() -> None:
    """A cell had given it up, and said so; that it has died since nobody has heard."""
    with closing(sessions), Mesh.up("m", {"dp": 2}, path=sys.path, backend="none") as mesh:
        told = Obituaries()
        told.note_told(mesh, [1])
        os.kill(mesh.roster.states[1].pid, signal.SIGKILL)
        assert wait_until(mesh.roster, lambda: mesh.roster.dead() == [1], 10)
        assert [line.partition(" (")[0] for line in told.lines(mesh)] == ["note: rank 1"]
        assert told.lines(mesh) == []
