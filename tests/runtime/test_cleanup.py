"""How actors end: what they own first, then `__cleanup__`, and nobody goes before that is done."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime import Actor, Channel, Port, SupervisionError, current_rank, endpoint, node
from tests.runtime.families import IMPATIENCE, AsyncTidy, Tidy, hurry

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage


class Thorough(Actor):
    """Cleans up until it is told that it has done enough."""

    def __init__(self, port: Port[Any], name: str) -> None:
        self.port = port
        self.name = name

    def __cleanup__(self, exc: Exception | None) -> None:
        port, enough = Channel[None].open()
        self.port.send((self.name, port))
        enough.recv().get(10)
        self.port.send((self.name, "clean"))


class Placed(Actor):
    """Tells where it is as it cleans up."""

    def __init__(self, port: Port[Any]) -> None:
        self.port = port

    @endpoint
    def leave(self) -> None:
        sys.exit(3)

    def __cleanup__(self, exc: Exception | None) -> None:
        self.port.send(dict(current_rank()))


class AsyncPlaced(Actor):
    def __init__(self, port: Port[Any]) -> None:
        self.port = port

    @endpoint
    async def leave(self) -> None:
        sys.exit(3)

    async def __cleanup__(self, exc: Exception | None) -> None:
        self.port.send(dict(current_rank()))


@pytest.mark.parametrize("cls", [Placed, AsyncPlaced])
def test_its_rank_is_that_of_the_actor_however_it_ends(stage: Stage, cls: Any) -> None:
    """Not one in the slice through which it was called last."""
    port, told = Channel[Any].open()
    placed = stage.spawn(cls, port)
    with pytest.raises(SupervisionError, match="SystemExit"):
        placed.slice(r=1).leave.call_one().get(10)
    assert told.recv().get(10) == {"r": 1}
    assert "SystemExit" in stage.faults.get(timeout=10).report()
    placed.stop().get(10)
    assert told.recv().get(10) == {"r": 0}


def test_stop_waits_for_it(stage: Stage) -> None:
    port, told = Channel[Any].open()
    tidy = stage.spawn(Tidy, port)
    tidy.stop().get(10)
    assert [told.recv().get(0), told.recv().get(0)] == [("tidy", None), ("tidy", None)]


def test_after_a_failure_it_is_told_the_reason_and_runs_once(stage: Stage) -> None:
    port, told = Channel[Any].open()
    tidy = stage.one(Tidy, port)
    tidy.fail.broadcast()
    name, reason = told.recv().get(10)
    assert name == "tidy"
    assert "ValueError: untidy" in reason
    stage.faults.get(timeout=10)
    tidy.stop().get(10)
    assert not told.recv().done()


def test_what_it_owns_is_cleaned_first_elsewhere_too(stage: Stage) -> None:
    port, told = Channel[Any].open()
    tidy = stage.one(Tidy, port, "owner")
    tidy.adopt.call_one(stage.shared(r=2).slice(r=1), "elsewhere").get(10)
    tidy.adopt.call_one(stage.shared(r=2).slice(r=0), "here").get(10)
    tidy.stop().get(10)
    names = [told.recv().get(10)[0] for _ in range(3)]
    assert sorted(names) == ["elsewhere", "here", "owner"]
    # What another process says may be heard later than it was said.
    assert names.index("here") < names.index("owner")


def test_it_runs_when_the_processes_stop(stage: Stage) -> None:
    port, told = Channel[Any].open()
    procs = stage.procs({"r": 2})
    tidy = procs.spawn("tidy", Tidy, port)
    quiet = procs.spawn("async", AsyncTidy, port)
    tidy.ok.call().get(10)
    quiet.initialized.get(10)
    procs.stop().get(10)
    assert [told.recv().get(10) for _ in range(4)] == [("tidy", None)] * 4


def test_when_processes_stop_what_an_actor_owns_is_cleaned_first(stage: Stage) -> None:
    port, told = Channel[Any].open()
    procs = stage.procs({"r": 1})
    owner = procs.spawn("tidy", Tidy, port, "owner")
    for name in ("first", "second"):
        owner.adopt.call_one(procs, name).get(10)
    procs.stop().get(10)
    assert [told.recv().get(10)[0] for _ in range(3)] == ["second", "first", "owner"]


def test_it_runs_when_the_processes_of_busy_actors_stop(stage: Stage, until: Any) -> None:
    port, told = Channel[Any].open()
    started, begun = Channel[Any].open()
    procs = stage.procs({"r": 1})
    lingering = procs.spawn("async", AsyncTidy, port).linger.call_one(started)
    begun.recv().get(10)
    held = procs.spawn("tidy", Tidy, port).hold.call_one(started)
    release = begun.recv().get(10)
    stopping = threading.Thread(target=procs.stop)
    stopping.start()
    until(lambda: procs.roster.is_stopped)
    release.send("at last")
    stopping.join(10)
    assert sorted(told.recv().get(10)[0] for _ in range(3)) == ["cancelled", "tidy", "tidy"]
    with pytest.raises(SupervisionError, match="stopped"):
        lingering.get(10)
    assert held.get(10) == "at last"


@pytest.mark.slow
@pytest.mark.parametrize("what", ["actors", "processes"])
def test_what_an_async_actor_awaits_too_long_is_cancelled(stage: Stage, what: str) -> None:
    port, told = Channel[Any].open()
    started, begun = Channel[Any].open()
    procs = stage.procs({"r": 1})
    tidy = procs.spawn("async", AsyncTidy, port)
    futures = [tidy.brood.call_one(started) for _ in range(2)]
    begun.recv().get(10)
    (tidy if what == "actors" else procs).stop().get(10)
    assert told.recv().get(10) == ("tidy", None)
    for future in futures:
        with pytest.raises(SupervisionError, match="stopped"):
            future.get(10)


@pytest.mark.slow
def test_nobody_waits_for_ever_for_an_actor_to_end(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "PATIENCE", IMPATIENCE)  # of ranks that are threads
    port, told = Channel[Any].open()
    started, begun = Channel[Any].open()
    tidy = stage.spawn(Tidy, port, on=stage.procs({"r": 1}, bootstrap=hurry))
    held, late = tidy.hold.call_one(started), tidy.ok.call_one()
    release = begun.recv().get(10)
    tidy.stop().get(10)
    release.send("at last")
    assert held.get(10) == "at last"
    with pytest.raises(SupervisionError, match="stopped"):
        late.get(10)
    assert told.recv().get(10) == ("tidy", None)


def test_a_hook_that_raises_hinders_nobody(stage: Stage) -> None:
    port, told = Channel[Any].open()
    stage.one(Tidy, port, "untidy").stop().get(10)
    stage.one(AsyncTidy, port, is_clean=False).stop().get(10)
    assert [told.recv().get(10)[0] for _ in range(2)] == ["untidy", "tidy"]


def test_of_an_async_actor_tasks_are_cancelled_first(stage: Stage) -> None:
    port, told = Channel[Any].open()
    started, begun = Channel[str].open()
    tidy = stage.one(AsyncTidy, port)
    lingering = tidy.linger.call_one(started)
    begun.recv().get(10)
    tidy.stop().get(10)
    assert [told.recv().get(0) for _ in range(2)] == [("cancelled", None), ("tidy", None)]
    with pytest.raises(SupervisionError, match="stopped"):
        lingering.get(10)


def test_an_async_actor_that_fails_cleans_up_too(stage: Stage) -> None:
    port, told = Channel[Any].open()
    started, begun = Channel[str].open()
    tidy = stage.one(AsyncTidy, port)
    lingering = tidy.linger.call_one(started)
    begun.recv().get(10)
    tidy.fail.broadcast()
    assert told.recv().get(10) == ("cancelled", None)
    assert "ValueError: untidy" in told.recv().get(10)[1]
    with pytest.raises(SupervisionError):
        lingering.get(10)
    stage.faults.get(timeout=10)


def test_processes_stop_when_what_was_to_end_before_has_cleaned_up(stage: Stage, until: Any) -> None:
    port, told = Channel[Any].open()
    procs = stage.procs({"r": 1})
    thorough = procs.spawn("thorough", Thorough, port, "thorough")
    thorough.initialized.get(10)
    stopped = thorough.stop()
    _, release = told.recv().get(10)
    stopping = threading.Thread(target=procs.stop)
    stopping.start()
    until(lambda: procs.roster.is_stopped)
    release.send(None)
    assert told.recv().get(10) == ("thorough", "clean")
    stopped.get(10)
    stopping.join(10)


ENDING = """
import os, sys, threading
sys.path[:0] = {path!r}
import meshbook.runtime
from meshbook.runtime import Actor, endpoint, this_host
from meshbook.runtime.session import session

class Slow(Actor):
    def __cleanup__(self, exc):
        threading.Event().wait(3)
        print("clean", flush=True)

class Owner(Actor):
    @endpoint
    def found(self):
        self.procs = this_host().spawn_procs()
        self.slow = self.procs.spawn("slow", Slow)
        self.slow.initialized.get(20)

    @endpoint
    def die(self):
        os._exit(3)

told = threading.Event()
meshbook.runtime.unhandled_fault_hook = lambda failure: told.set()
owner = this_host().spawn_procs().spawn("owner", Owner)
owner.found.call_one().get(20)
owner.die.broadcast()
told.wait(20)
while not any(roster.is_stopped for roster in list(session().root.rosters.values())):
    pass
"""


@pytest.mark.slow
@pytest.mark.real
def test_a_program_ends_quietly_while_processes_end_whose_owner_is_gone() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ENDING.format(path=sys.path)], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")
