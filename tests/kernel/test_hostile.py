"""Cells that take away what a rank itself works with: it lives, and the next cells run."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from meshbook.kernel.mesh import Mesh

pytestmark = pytest.mark.real


@pytest.fixture
def mesh(engine: str) -> Iterator[Mesh]:
    with Mesh.up("hostile", {"rank": 2}, engine=engine, path=sys.path, backend="none") as mesh:
        yield mesh


def test_a_clock_that_raises_ends_no_rank(mesh: Mesh) -> None:
    broken = "def bad(): raise RuntimeError('patched')\nimport time\ntime.perf_counter = bad"
    assert mesh.run(broken, [1]).finished.get(20).progress.lost == {}
    progress = mesh.run("rank").finished.get(20).progress
    assert (progress.lost, progress.failed) == ({}, [])
