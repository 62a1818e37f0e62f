"""A notebook whose process has used up its descriptors: its cells end, and say so."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from meshbook.kernel.mesh import Mesh

pytestmark = [pytest.mark.real, pytest.mark.skipif(sys.platform != "linux", reason="large values travel inline")]


@pytest.fixture
def mesh(engine: str) -> Iterator[Mesh]:
    with Mesh.up("few", {"dp": 2}, engine=engine, path=sys.path, backend="none") as mesh:
        yield mesh


@contextmanager
def no_descriptors() -> Iterator[None]:
    """As long as this lasts, the process gets no further descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 2, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                held.append(os.dup(held[0]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in held:
            os.close(fd)


FULL = """
import os, resource
globals().update({f"a_variable_with_a_name_{i}": i for i in range(1500)})
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
eaten = []
try:
    while True: eaten.append(os.open(os.devnull, os.O_RDONLY))
except OSError: pass
"""


def test_a_rank_without_descriptors_tells_much_of_itself_and_lives_on(mesh: Mesh) -> None:
    mesh.run(FULL, [1]).finished.get(20)
    assert len(mesh.who(timeout=20).holdings) > 1500
    assert mesh.run("rank").finished.get(20).progress.lost == {}


def test_a_cell_whose_values_cannot_come_ends(mesh: Mesh) -> None:
    with no_descriptors():
        run = mesh.run("bytes(100_000)")
        assert run.finished.get(20) is run
        assert sorted(run.progress.lost) == [0, 1]
        assert "rank 0 (dp=0" in run.progress.lost[0] and "Too many open files" in run.progress.lost[0]
        assert not mesh.run("1").finished.get(20).progress.lost
    assert not mesh.run("bytes(100_000)").finished.get(20).progress.lost
