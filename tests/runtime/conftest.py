"""What the tests of meshes share: engines that are warm once a module, and meshes that end with their test."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from meshbook.runtime.engines.base import Engine
from meshbook.runtime.engines.inproc import InprocEngine
from meshbook.runtime.engines.local import LocalEngine
from meshbook.runtime.mesh import ActorMesh, ProcMesh
from meshbook.runtime.roster import Roster
from meshbook.runtime.session import specs_for
from meshbook.runtime.shape import Shape
from meshbook.runtime.wire.reactor import Reactor
from tests.runtime.actors import Worker

ROOT = Path(__file__).parents[2]

PRELOAD = ["meshbook.runtime.ranks.worker", "numpy"]
"""No torch: half of what these tests would take is its import."""


def _until(condition: Callable[[], Any], seconds: float = 10.0) -> Any:
    """Poll until `condition` is true; its value."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)
    return found


@pytest.fixture(scope="session")
def until() -> Callable[..., Any]:
    return _until


class Bench:
    """Makes meshes on one engine, and stops them."""

    def __init__(self, reactor: Reactor, engine: Engine) -> None:
        self.reactor = reactor
        self.engine = engine
        self._meshes: list[ProcMesh] = []

    def begin(self, axes: dict[str, int] | None = None, how: str = "auto", **options: Any) -> ProcMesh:
        """A mesh that may not be ready yet."""
        axes = axes or {"rank": 2}
        path = [*sys.path, str(ROOT)]
        specs = specs_for(axes, **{"backend": "none", "path": path, **options})
        mesh = ProcMesh(Roster(self.reactor, self.engine, specs, how), Shape.row_major(axes))
        self._meshes.append(mesh)
        return mesh

    def up(self, axes: dict[str, int] | None = None, how: str = "auto", **options: Any) -> ProcMesh:
        mesh = self.begin(axes, how, **options)
        mesh.roster.wait_ready(30)
        return mesh

    def workers(self, axes: dict[str, int] | None = None, how: str = "auto", **options: Any) -> ActorMesh[Worker]:
        """A worker on each rank of a new mesh."""
        workers = self.up(axes, how, **options).spawn("workers", Worker)
        workers.initialized.get(30)
        return workers

    def close(self) -> None:
        for mesh in self._meshes:
            mesh.roster.stop(grace=1)


@pytest.fixture(scope="module")
def reactor() -> Generator[Reactor]:
    reactor = Reactor()
    yield reactor
    reactor.close()


@pytest.fixture(scope="module")
def local_engine(reactor: Reactor) -> Generator[LocalEngine]:
    engine = LocalEngine(reactor, PRELOAD)
    engine.warm()
    yield engine
    engine.close()


@pytest.fixture
def inproc(reactor: Reactor) -> Generator[Bench]:
    bench = Bench(reactor, InprocEngine(reactor))
    yield bench
    bench.close()


@pytest.fixture
def local(reactor: Reactor, local_engine: LocalEngine) -> Generator[Bench]:
    bench = Bench(reactor, local_engine)
    yield bench
    bench.close()


@pytest.fixture(params=["inproc", pytest.param("local", marks=pytest.mark.real)])
def bench(request: pytest.FixtureRequest, reactor: Reactor, local_engine: LocalEngine) -> Generator[Bench]:
    """The same test on both engines: what the fake does is what processes do."""
    bench = Bench(reactor, local_engine if request.param == "local" else InprocEngine(reactor))
    yield bench
    bench.close()
