"""A mesh whose ranks are reached over zmq does what one over pairs does."""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from meshbook import runtime
from meshbook.kernel.mesh import Mesh
from meshbook.kernel.outcome import Outcome
from meshbook.kernel.run import Run
from meshbook.runtime import Actor, ActorError, context, endpoint
from meshbook.runtime import session as sessions
from meshbook.runtime.errors import SpawnError
from meshbook.runtime.wire.tape import Text
from meshbook.runtime.wire.wiring import LinkKind
from meshbook.runtime.wire.zmq_hub import ZmqHub

pytestmark = [pytest.mark.real, pytest.mark.slow]

KINDS: list[LinkKind] = ["zmq", "zmq-tcp"]


@pytest.fixture(scope="module")
def session() -> Iterator[sessions.Session]:
    """One zygote for all tests here."""
    session = sessions.session()
    session.engine().warm()
    yield session
    sessions.close()


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where crews have their sockets: a folder in which nobody else has one. (That of the test has too long a name.)"""
    with tempfile.TemporaryDirectory(prefix="mb-") as name:
        monkeypatch.setenv("XDG_RUNTIME_DIR", name)
        yield Path(name)


@pytest.fixture(params=KINDS)
def mesh(request: pytest.FixtureRequest, session: sessions.Session) -> Iterator[Mesh]:
    with Mesh.up("m", {"rank": 2}, path=sys.path, backend="none", link=request.param) as mesh:
        crew: Any = mesh.roster.crew  # pyright: ignore[reportPrivateUsage]
        assert isinstance(crew._wiring, ZmqHub), "these tests are about zmq"
        yield mesh


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_stays_open_for_ranks_that_do_not_fit(
    kind: LinkKind, session: sessions.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would fail the test."""
    limit = len(os.listdir("/dev/fd")) + 70
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    with pytest.raises(SpawnError, match="open files"):
        sessions.spawn_procs({"rank": 2}, backend="none", link=kind)


def outcome(run: Run, rank: int) -> Outcome:
    return msgspec.msgpack.decode(run.progress.outcomes[rank], type=Outcome)


def text(run: Run, rank: int) -> str | None:
    value = outcome(run, rank).value
    return None if value is None else value.text


def finished(mesh: Mesh, source: str) -> Run:
    run = mesh.run(source)
    run.finished.get(10)
    return run


def test_a_cell_runs_prints_and_answers(mesh: Mesh) -> None:
    run = finished(mesh, "print('hi from', rank); rank * 10")
    assert [text(run, rank) for rank in (0, 1)] == ["0", "10"]
    said = {rank: event.text for rank, event in run.take() if isinstance(event, Text)}
    assert said == {0: "hi from 0\n", 1: "hi from 1\n"}


def test_values_of_any_size_go_there_and_back(mesh: Mesh) -> None:
    data = os.urandom(3 << 20)
    mesh.push({"data": data})
    assert mesh.pull("data") == {0: data, 1: data}


def test_many_cells_one_after_the_other(mesh: Mesh) -> None:
    runs = [mesh.run(f"{number} + rank") for number in range(100)]
    for number, run in enumerate(runs):
        run.finished.get(10)
        assert text(run, 1) == str(number + 1)


def test_an_interrupt_reaches_a_busy_rank(mesh: Mesh, until: Callable[..., Any]) -> None:
    run = mesh.run("import time\nwhile True: time.sleep(0.01)")
    until(lambda: sum("line 2" in place for place in mesh.where([0, 1]).values()) == 2)
    assert mesh.interrupt(call=run.call) == {0: True, 1: True}
    run.finished.get(10)
    failure = outcome(run, 0).failure
    assert failure is not None and failure.type_name == "KeyboardInterrupt"
    assert text(finished(mesh, "'next'"), 0) == "'next'"


def test_a_killed_rank_is_noticed_and_the_other_lives(mesh: Mesh) -> None:
    run = mesh.run("import time; time.sleep(30) if rank else 'done'")
    os.kill(mesh.roster.states[1].pid, signal.SIGKILL)
    run.finished.get(10)
    assert "killed by SIGKILL" in run.progress.lost[1]
    assert text(run, 0) == "'done'"
    alive = mesh.run("rank + 1", [0])
    alive.finished.get(10)
    assert text(alive, 0) == "1"


class Adder(Actor):
    """Adds its rank in the whole mesh."""

    @endpoint
    def add(self, value: Any) -> Any:
        return value + context().actor_instance.rank.rank


class Asker(Actor):
    """Asks others: over zmq no link to them can be passed."""

    def __init__(self, others: Any) -> None:
        self._others = others

    @endpoint
    def ask(self, value: Any) -> list[Any]:
        return self._others.add.call(value).get(10).values()

    @endpoint
    def ask_many(self, count: int) -> list[int]:
        futures = [self._others.slice(rank=1).add.call_one(number) for number in range(count)]
        return [future.get(10) for future in futures]

    @endpoint
    def ask_one(self, rank: int) -> int:
        return self._others.slice(rank=rank).add.call_one(0).get(10)


def test_actors_call_each_other_by_way_of_the_controller(mesh: Mesh) -> None:
    others = mesh.spawn("adders", Adder)
    with Mesh.up("n", {"rank": 1}, path=sys.path, backend="none", link="zmq") as further:
        for askers in (mesh.spawn("askers", Asker, others), further.spawn("askers", Asker, others)):
            assert askers.ask.call(5).get(20).values() == [[5, 6]] * len(askers)
            assert askers.ask_many.call(100).get(20).values() == [list(range(1, 101))] * len(askers)
            large = askers.ask.call(np.zeros(1 << 20)).get(20).values()[0]
            assert [array.sum() for array in large] == [0, 1 << 20]


def test_one_that_is_gone_is_told_of_there_too(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "unhandled_fault_hook", lambda failure: None)
    askers = mesh.spawn("askers", Asker, mesh.spawn("adders", Adder)).slice(rank=0)
    assert askers.ask_one.call_one(1).get(20) == 1
    os.kill(mesh.roster.states[1].pid, signal.SIGKILL)
    with pytest.raises(ActorError, match=r"rank 1 .*killed by SIGKILL"):
        askers.ask_one.call_one(1).get(20)
    mesh.heal()
    assert askers.ask_one.call_one(1).get(20) == 1


def test_ranks_leave_when_they_are_told_to(mesh: Mesh) -> None:
    assert mesh.down(grace=10) == {0: "exited with code 0", 1: "exited with code 0"}


def test_nothing_is_left_in_the_file_system(folder: Path, mesh: Mesh) -> None:
    finished(mesh, "1")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("how", ["fork", "exec"])
def test_ranks_come_by_fork_and_by_exec(session: sessions.Session, how: str) -> None:
    with Mesh.up("m", {"rank": 1}, how=how, path=sys.path, backend="none", link="zmq") as mesh:
        assert text(finished(mesh, "rank"), 0) == "0"


def test_an_unknown_link_is_refused(session: sessions.Session) -> None:
    with pytest.raises(ValueError, match="link must be auto, pair, zmq or zmq-tcp, not 'tcp'"):
        Mesh.up("m", {"rank": 1}, link="tcp")
