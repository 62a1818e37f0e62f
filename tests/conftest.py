"""What every test is held to: it leaves no process, thread, descriptor or shared-memory segment behind."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace

import hypothesis
import psutil
import pytest

from tests.holdings import GRACE, TOKEN, Holdings, left_since, our_process

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # of a suite that a shell has started in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what tests start would ignore Ctrl-C too

# Hundreds of interpreters start here: what one has compiled, the next need not, whatever the environment says.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# As jsonschema is imported, by nbformat, it would have 38 grammars of addresses compiled for it, which takes a second.
sys.modules.setdefault("rfc3987_syntax", None)  # pyright: ignore[reportArgumentType] - so it is not found

# An example may take 200 ms by default, by the clock on the wall: on a machine that others use too, that says nothing.
hypothesis.settings.register_profile("meshbook", deadline=None)
hypothesis.settings.load_profile("meshbook")

# Every process that a test starts inherits this, so that an orphan is still known as ours.
_STATE = tempfile.TemporaryDirectory(prefix="meshbook-state-")
os.environ["MESHBOOK_STATE"] = _STATE.name  # not the user's own, in this process and all that it starts
os.environ[TOKEN] = uuid.uuid4().hex


def pytest_addoption(parser: pytest.Parser) -> None:
    where = "where the meshes of the faults and debugger suites come up: docs/hosts.md says what differs there"
    parser.addoption("--on", choices=("local", "hosts", "monarch"), default="local", help=where)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What is marked `far` runs on hosts too."""
    is_far = "on" in metafunc.fixturenames and metafunc.definition.get_closest_marker("far") is not None
    if is_far and metafunc.config.getoption("on") == "local":
        # None: as without the mark, so that both share what is made once a file.
        metafunc.parametrize("on", [None, "hosts"], ids=["local", "hosts"], indirect=True, scope="module")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays: the collector would look at all of it again, a second each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _young_heap() -> None:
    """So does what the files before have imported, such as torch's compiler: tests that collect took a second each."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    callspec = getattr(item, "callspec", None)
    on = (callspec and callspec.params.get("on")) or item.config.getoption("on")
    for mark in item.iter_markers("differs"):
        where, reason = mark.args
        if on == where or (on, where) == ("monarch", "hosts"):  # whose ranks live with the same agents
            pytest.skip(reason)


@pytest.fixture(scope="module")
def on(request: pytest.FixtureRequest) -> str:
    """Where meshes come up: `local`, `hosts` or `monarch`."""
    return getattr(request, "param", None) or str(request.config.getoption("on"))


@dataclass(slots=True)
class Leaks:
    """The watch over one test; ask for the fixture `leaks` to tell it what may stay."""

    before: Holdings

    def allow_what_stands(self) -> None:
        """What exists now is no leak: for what one test starts and all share, such as the zygote."""
        self.before = Holdings.now()

    def allow_descriptors(self) -> None:
        """Those that are open now are no leak."""
        self.before = replace(self.before, descriptors=Holdings.now().descriptors)

    def found(self, grace: float = GRACE) -> list[str]:
        """What is still there when `grace` seconds are over; empty as soon as nothing is."""
        return left_since(self.before, grace)


@pytest.fixture(autouse=True)
def leaks() -> Iterator[Leaks]:
    watch = Leaks(Holdings.now())
    yield watch
    if leaked := watch.found():
        _kill_processes_since(watch.before)
        pytest.fail("the test left behind:\n  " + "\n  ".join(leaked), pytrace=False)


def _kill_processes_since(before: Holdings) -> None:
    """The next test must not suffer for this one."""
    for pid in frozenset(psutil.pids()) - before.pids:
        if our_process(pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()
