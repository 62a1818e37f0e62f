"""What the tests of meshes share: engines that are warm once a module, and meshes that end with their test."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from meshbook.runtime import session, this_host
from meshbook.runtime.controller import root
from meshbook.runtime.engines.base import Engine
from meshbook.runtime.engines.hosts import HostsEngine
from meshbook.runtime.engines.inproc import InprocEngine
from meshbook.runtime.engines.launch import CommandLauncher
from meshbook.runtime.engines.local import LocalEngine
from meshbook.runtime.engines.monarch import MonarchEngine
from meshbook.runtime.mesh import ProcMesh
from meshbook.runtime.session import specs_for
from meshbook.runtime.shape import Shape
from meshbook.runtime.supervision import MeshFailure
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


class _DeafRoot(root.Root):
    """A root for tests in which ranks die on purpose: the default hook would end the program."""

    def unhandled(self, failure: MeshFailure) -> None: ...


class Bench:
    """Makes meshes on one engine, and stops them."""

    def __init__(self, reactor: Reactor, engine: Engine) -> None:
        self.reactor = reactor
        self.engine = engine
        self.root = _DeafRoot(reactor, lambda name: self.engine, lambda wanted, _: specs_for(wanted.axes))
        self._meshes: list[ProcMesh] = []

    def begin(self, axes: dict[str, int] | None = None, how: str = "auto", **options: Any) -> ProcMesh:
        """A mesh that may not be ready yet."""
        axes = axes or {"rank": 2}
        path = [*sys.path, str(ROOT)]
        seats = self.engine.seats(axes)
        specs = specs_for(axes, **{"backend": "none", "path": path, "seats": seats, **options})
        mesh = ProcMesh(self.root.roster(specs, how=how), Shape.row_major(axes))
        self._meshes.append(mesh)
        return mesh

    def up(self, axes: dict[str, int] | None = None, how: str = "auto", **options: Any) -> ProcMesh:
        mesh = self.begin(axes, how, **options)
        mesh.roster.wait_ready(30)
        return mesh

    def workers(self, axes: dict[str, int] | None = None, how: str = "auto", **options: Any) -> Worker:
        """A worker on each rank of a new mesh."""
        workers = self.up(axes, how, **options).spawn("workers", Worker)
        workers.initialized.get(30)
        return workers

    def close(self) -> None:
        for mesh in self._meshes:
            mesh.roster.stop(grace=1)
        self.root.close()


@pytest.fixture(scope="module")
def reactor() -> Generator[Reactor]:
    reactor = Reactor()
    yield reactor
    reactor.close()


@pytest.fixture(scope="module")
def zygote_modules() -> list[str]:
    return PRELOAD


@pytest.fixture(scope="module")
def local_engine(reactor: Reactor, zygote_modules: list[str]) -> Generator[LocalEngine]:
    engine = LocalEngine(reactor, zygote_modules)
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


@pytest.fixture(scope="module")
def hosts_engine(reactor: Reactor, zygote_modules: list[str]) -> Generator[HostsEngine]:
    """Two hosts, which are processes on this machine."""
    engine = HostsEngine(reactor, CommandLauncher(reactor, "", ["alpha", "beta"]), 2, zygote_modules)
    engine.warm()
    yield engine
    engine.close()


@pytest.fixture
def hosts(reactor: Reactor, hosts_engine: HostsEngine, leaks: Any) -> Generator[Bench]:
    hosts_engine.seats({"rank": 2})  # the agents and their zygotes stay for all tests of a file
    leaks.allow_what_stands()
    bench = Bench(reactor, hosts_engine)
    yield bench
    bench.close()


@pytest.fixture(scope="module")
def monarch_engine(reactor: Reactor, zygote_modules: list[str]) -> Generator[HostsEngine]:
    """Two hosts of Monarch, which are processes on this machine."""
    engine = MonarchEngine(reactor, 2, preload=zygote_modules)
    yield engine
    engine.close()


@pytest.fixture
def monarch(reactor: Reactor, monarch_engine: HostsEngine, leaks: Any) -> Generator[Bench]:
    monarch_engine.seats({"rank": 2})
    leaks.allow_what_stands()
    bench = Bench(reactor, monarch_engine)
    yield bench
    bench.close()


HAS_MONARCH = importlib.util.find_spec("monarch") is not None

ENGINES = [
    "inproc",
    pytest.param("local", marks=pytest.mark.real),
    pytest.param("hosts", marks=pytest.mark.real),
    pytest.param(
        "monarch", marks=[pytest.mark.real, pytest.mark.skipif(not HAS_MONARCH, reason="torchmonarch is missing")]
    ),
]


@pytest.fixture(params=ENGINES)
def bench(request: pytest.FixtureRequest, local_engine: LocalEngine) -> Bench:
    """The same test on all engines: what the fake does is what processes do, here and on other hosts."""
    return request.getfixturevalue(request.param)


class Stage:
    """Spawns actors for one test, by way of `this_host()` as a program does, and stops them after it."""

    def __init__(self, engine: str, shared: dict[tuple[tuple[str, int], ...], Any], leaks: Any) -> None:
        self.engine = engine
        self.faults: SimpleQueue[MeshFailure] = SimpleQueue()
        """What reached `unhandled_fault_hook`; what a test leaves in it fails the test."""
        self._shared = shared
        self._leaks = leaks
        self._made: list[Any] = []

    def shared(self, **axes: int) -> Any:
        """Processes that all tests of a file use: to be left alive and as they were."""
        key = tuple(axes.items())
        if key not in self._shared:
            self._shared[key] = this_host().spawn_procs(axes)
            self._shared[key].initialized.get(30)
            self._leaks.allow_what_stands()
        return self._shared[key]

    def procs(self, *args: Any, **kwargs: Any) -> Any:
        """Processes of this test's own."""
        return self.owned(this_host().spawn_procs(*args, **kwargs))

    def spawn(self, cls: Any, *args: Any, on: Any = None, name: str = "", **kwargs: Any) -> Any:
        """Actors on `on`, or on two shared ranks of an axis `r`."""
        procs = self.shared(r=2) if on is None else on
        return self.owned(procs.spawn(name or cls.__name__.lower(), cls, *args, **kwargs))

    def one(self, cls: Any, *args: Any, **kwargs: Any) -> Any:
        """One actor on a shared rank."""
        return self.spawn(cls, *args, on=self.shared(r=2).slice(r=0), **kwargs)

    def allow_links(self) -> None:
        """Links between shared ranks, and their logs, stay as long as the ranks."""
        if self._shared:
            self._leaks.allow_descriptors()

    def forget(self) -> None:
        """The session was closed by the test: nothing of it is left to stop."""
        self._made.clear()
        self._shared.clear()

    def owned(self, mesh: Any) -> Any:
        self._made.append(mesh)
        return mesh

    def close(self) -> list[str]:
        """Stop all; the failures that nobody has taken."""
        for mesh in reversed(self._made):
            mesh.stop().get(20)
        return [self.faults.get().report() for _ in range(self.faults.qsize())]


def staged(engine: str, preload: list[str] = PRELOAD) -> Generator[tuple[str, dict[Any, Any]]]:
    """A session of this engine as the default, and what it shares."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        patch.setattr(session, "ZYGOTE_MODULES", preload)
        patch.setattr(root, "default_engine", [engine])
        yield engine, {}
        session.close()


@pytest.fixture(scope="module", params=["inproc", pytest.param("local", marks=pytest.mark.real)])
def _both(request: pytest.FixtureRequest) -> Generator[tuple[str, dict[Any, Any]]]:
    yield from staged(request.param)


@pytest.fixture(scope="module")
def _processes() -> Generator[tuple[str, dict[Any, Any]]]:
    yield from staged("local")


def _play(engine: str, shared: dict[Any, Any], leaks: Any) -> Generator[Stage]:
    session.session().engine(engine).warm()
    leaks.allow_what_stands()
    stage = Stage(engine, shared, leaks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("meshbook.runtime.unhandled_fault_hook", stage.faults.put, raising=False)
        yield stage
        assert stage.close() == [], "failures that nobody has dealt with"
        stage.allow_links()


@pytest.fixture
def stage(_both: tuple[str, dict[Any, Any]], leaks: Any) -> Generator[Stage]:
    """Actors on both engines: what the fake does is what processes do."""
    yield from _play(*_both, leaks)


@pytest.fixture
def process_stage(_processes: tuple[str, dict[Any, Any]], leaks: Any) -> Generator[Stage]:
    """Actors in processes, for what is about processes."""
    yield from _play(*_processes, leaks)
