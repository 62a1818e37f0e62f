"""Cells that take away what a rank itself works with: it lives, and the next cells run."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from meshbook.kernel.mesh import Mesh
from meshbook.runtime.wire.tape import Text

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


def test_descriptors_that_a_cell_has_closed_are_given_to_no_connection(mesh: Mesh) -> None:
    mesh.run("import os, tempfile\nif rank == 1:\n    for fd in range(3): os.close(fd)").finished.get(20)
    run = mesh.run("opened = tempfile.TemporaryFile()\nassert opened.fileno() > 2\nos.system('echo still heard')")
    progress = run.finished.get(20).progress
    assert (progress.lost, progress.failed) == ({}, [])
    said = {rank: piece.text for rank, piece in run.take() if isinstance(piece, Text)}
    assert said == {0: "still heard\n", 1: "still heard\n"}


def test_what_a_cell_has_opened_in_their_place_stays(mesh: Mesh) -> None:
    mesh.run("import os\nos.close(0)\nzero = os.open('/', os.O_RDONLY)\nassert zero == 0", [1]).finished.get(20)
    progress = mesh.run("assert os.fstat(0).st_ino == os.stat('/').st_ino\nos.close(0)", [1]).finished.get(20).progress
    assert (progress.lost, progress.failed) == ({}, [])


def test_a_rank_that_lives_and_can_tell_nothing_has_failed(mesh: Mesh) -> None:
    broken = "import pickle\ndef bad(*a, **k): raise RuntimeError('patched')\npickle.loads = bad"
    mesh.run(broken, [1]).finished.get(20)
    progress = mesh.run("rank").finished.get(20).progress
    assert progress.lost[1].startswith("rank 1 ") and "cannot be unpickled" in progress.lost[1]
    assert (progress.unclear, progress.gone, mesh.roster.dead()) == ({1}, set(), [])


def test_a_write_that_raises_ends_no_rank(mesh: Mesh) -> None:
    broken = "def bad(*a): raise RuntimeError('patched')\nimport os\nos.write = bad"
    assert mesh.run(broken, [1]).finished.get(20).progress.lost == {}
    run = mesh.run("print('still heard')", [1]).finished.get(20)
    assert (run.progress.lost, run.progress.failed) == ({}, [])
    assert [piece.text for _, piece in run.take() if isinstance(piece, Text)] == ["still heard\n"]
