"""Real kernels for the tests of the magics."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_core.utils import ensure_event_loop

from tests.magics.front_end import Kernel
from tests.profiles import COMPILER, preload

HAS_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[HAS_FAILED] = item.stash.get(HAS_FAILED, False) or report.failed
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: Any) -> Generator[None]:
    """One failure is enough: cells that still run and questions nobody answered go, the next test gets a new kernel."""
    try:
        yield
    except BaseException:
        item.stash[HAS_FAILED] = True
        raise
    finally:
        for made in [*item._request._fixture_defs.values()] if item.stash[HAS_FAILED] else []:
            if made.scope != "function" and made.cached_result and isinstance(made.cached_result[0], Kernel):
                made.finish(item._request)  # and what was made from it


@pytest.fixture(scope="package", autouse=True)
def loop_of_the_client() -> Generator[None]:
    """The event loop that jupyter_client makes at its first use and keeps."""
    loop = ensure_event_loop()
    yield
    loop.close()


@pytest.fixture
def new_kernel(on: str) -> Generator[Callable[..., Kernel]]:
    """Makes kernels for one test."""
    kernels: list[Kernel] = []

    def create(prefix: Path | None = None, **options: Any) -> Kernel:
        kernels.append(Kernel(prefix, on=on, **options))
        return kernels[-1]

    yield create
    for kernel in kernels:
        kernel.close()


def _prepared(on: str, *modules: str) -> Generator[Kernel]:
    kernel = Kernel(on=on, prepare=partial(preload, modules=[*modules]))
    try:
        kernel.ok("%load_ext meshbook")
        kernel.ok("m = %mesh up m dp=2 tp=2 --device cpu")
        kernel.ok("%%on_mesh\nimport os, time, torch, torch.distributed as dist")
        yield kernel
    finally:
        kernel.close()


@pytest.fixture(scope="package")
def shared_kernel(request: pytest.FixtureRequest) -> Generator[Kernel]:
    yield from _prepared(str(request.config.getoption("on")), COMPILER)  # some tests train


@pytest.fixture(scope="package")
def far_kernel() -> Generator[Kernel]:
    """Its mesh is on two hosts."""
    yield from _prepared("hosts")


@pytest.fixture
def kernel(request: pytest.FixtureRequest, on: str, leaks: Any) -> Kernel:
    """A kernel with a mesh `m`, dp=2 × tp=2, which many tests share: whoever spoils a mesh brings up another."""
    name = "shared_kernel" if on == request.config.getoption("on") else "far_kernel"
    shared: Kernel = request.getfixturevalue(name)
    leaks.allow_what_stands()
    outputs = shared.cell("m = %mesh use m")
    if outputs.status == "aborted":  # as cells are behind one that fails
        outputs = shared.cell("m = %mesh use m")
    assert outputs.status == "ok", outputs.text
    return shared


Until = Callable[..., None]


@pytest.fixture
def until() -> Until:
    """Waits for a condition, asking often: for what sends no message when it comes."""

    def wait(condition: Callable[[], bool], timeout: float = 5.0) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, "it did not come"
            time.sleep(0.01)

    return wait


@pytest.fixture
def gone(until: Until) -> Callable[..., None]:
    """Waits until processes have ended."""

    def wait(pids: dict[int, int], timeout: float = 3.0) -> None:
        until(lambda: not any(psutil.pid_exists(pid) and not _is_zombie(pid) for pid in pids.values()), timeout)

    return wait


def _is_zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
