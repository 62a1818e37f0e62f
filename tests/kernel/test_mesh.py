from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from meshbook.kernel import mesh as kernel_mesh
from meshbook.kernel.mesh import Mesh
from meshbook.kernel.outcome import Outcome
from meshbook.kernel.run import Run
from meshbook.runtime.controller.gather import Gather
from meshbook.runtime.wire.tape import Text
from tests.spawned import SOURCE


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)


@pytest.fixture
def mesh(engine: str) -> Iterator[Mesh]:
    with Mesh.up("m", {"rank": 1}, engine=engine, path=sys.path, backend="none") as mesh:
        yield mesh


def test_old_runs_and_their_values_are_let_go(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_mesh, "_HEARD_RUNS", 2)

    def run(source: str) -> weakref.ref[Run]:
        run = mesh.run(source)
        run.finished.get(30)
        return weakref.ref(run)

    runs = [run(f"'value {n}'") for n in range(5)]
    gc.collect()
    assert [ref() is not None for ref in runs] == [False, False, False, True, True]


def test_a_run_that_goes_on_is_heard_however_many_follow(
    mesh: Mesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_mesh, "_HEARD_RUNS", 1)
    gate = tmp_path / "gate"
    waiting = f"import time\nwhile not __import__('os').path.exists({str(gate)!r}): time.sleep(0.01)\n"
    slow = mesh.run(waiting + "print('still heard')")
    others = [mesh.run("1") for _ in range(3)]
    gate.touch()
    others[-1].finished.get(30)
    said: list[str] = []
    while "still heard\n" not in "".join(said):
        assert slow.news.wait(10), said
        said += [item.text for _, item in slow.take() if isinstance(item, Text)]


def test_runs_are_forgotten_also_beside_one_that_goes_on(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_mesh, "_HEARD_RUNS", 2)
    gate = tmp_path / "gate"
    with Mesh.up("m", {"rank": 2}, engine=engine, path=sys.path, backend="none") as mesh:

        def run() -> weakref.ref[Run]:
            run = mesh.run("1", [1])
            run.finished.get(30)
            return weakref.ref(run)

        slow = mesh.run(f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)", [0])
        runs = [run() for _ in range(12)]
        gc.collect()
        gate.touch()
        slow.finished.get(30)
        assert sum(ref() is not None for ref in runs) <= 2


def test_a_thread_hears_at_once_while_another_leads_the_loop(
    mesh: Mesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a dashboard's, beside a cell: nothing that it waits for comes without a word to it."""
    monkeypatch.setattr("meshbook.runtime.wire.reactor._GLANCE", 60)
    reactor, over, gate = mesh.roster.reactor, threading.Event(), tmp_path / "gate"
    leader = threading.Thread(target=reactor.wait, args=(over,))
    leader.start()
    until(lambda: reactor._leader == leader.ident)
    for last in ("print('said')\ntime.sleep(60)", "0", "1 / 0"):
        run = mesh.run(f"import time\nwhile not __import__('os').path.exists({str(gate)!r}): time.sleep(0.01)\n{last}")
        follower = threading.Thread(target=reactor.wait, args=(run.news, 30))
        follower.start()
        until(lambda: reactor._followers)
        gate.touch()
        follower.join(10)
        assert not follower.is_alive(), last
        gate.unlink()
        started = time.monotonic()
        stopped = Gather(mesh.roster, [0], "interrupt")
        mesh.roster.interrupt([0], run.call, stopped)
        assert stopped.wait(30) and time.monotonic() - started < 10
        run.finished.get(10)
    reactor.announce(over)
    leader.join()


@pytest.mark.parametrize("is_plain", [False, True])
def test_a_task_of_a_cell_goes_on_until_the_next_one(mesh: Mesh, tmp_path: Path, is_plain: bool) -> None:
    wait = "while not os.path.exists(gate): await asyncio.sleep(0.002)"
    work = f"async def work(gate):\n  {wait}\n  print('went on')"
    mesh.run(f"import asyncio, os\n{work}").finished.get(30)
    starting = mesh.run(f"task = asyncio.create_task(work({str(tmp_path / 'gate')!r}))")
    starting.finished.get(30)
    if is_plain:  # other cells come and go
        mesh.run("1").finished.get(30)
    (tmp_path / "gate").touch()
    said: list[str] = []
    while "went on\n" not in "".join(said):
        assert starting.news.wait(10), said
        said += [item.text for _, item in starting.take() if isinstance(item, Text)]
    last = mesh.run("await task")
    last.finished.get(30)
    assert not last.progress.lost


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os._exit(3)", "ctypes.string_at(0)"])
def test_a_line_printed_right_before_a_sudden_end_is_told(mesh: Mesh, end: str) -> None:
    run = mesh.run(f"import ctypes, os\nprint('last words')\n{end}")
    run.finished.get(30)
    assert list(run.progress.lost) == [0]
    assert mesh.roster.logs[0].read().startswith("last words\n")
    assert "".join(item.text for _, item in run.take() if isinstance(item, Text)).startswith("last words\n")


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os._exit(3)"])
def test_last_words_are_of_the_cell_in_which_a_rank_ends(mesh: Mesh, end: str) -> None:
    mesh.run("import os, sys\nprint('old news', file=sys.stderr)").finished.get(30)
    run = mesh.run(end)
    run.finished.get(30)
    assert "old news" not in run.progress.lost[0]


def test_ranks_may_come_from_an_iterator(mesh: Mesh) -> None:
    mesh.push({"x": 3}, iter([0]))  # type: ignore[arg-type]
    assert mesh.pull("x", (rank for rank in [0])) == {0: 3}  # type: ignore[arg-type]


def test_a_run_for_which_no_rank_is_left_is_over_at_once(mesh: Mesh) -> None:
    assert mesh.run("1", []).finished.get(1).progress.outcomes == {}


def test_who_makes_process_groups_anew_comes_to_the_end_before_the_mesh_does(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[float, bool]] = []

    class Regrouping:
        def acquire(self, *, timeout: float) -> bool:
            asked.append((timeout, mesh.is_down))
            return True

        def release(self) -> None:
            asked.append((0, mesh.is_down))

    monkeypatch.setattr(mesh.roster.groups, "regrouping", Regrouping())
    mesh.down(grace=3.0)
    assert asked == [(3.0, False), (0, False)]
    assert mesh.is_down


def test_a_signal_handler_that_raises_while_its_rank_is_idle_ends_no_rank(mesh: Mesh) -> None:
    # torch's DataLoader has one, for workers that were killed.
    handler = "def late(*_):\n    came.append(1)\n    raise TimeoutError('too late')\n"
    mesh.run(f"import os, signal\ncame = []\n{handler}former = signal.signal(signal.SIGUSR2, late)").finished.get(30)
    os.kill(int(_value(mesh, "os.getpid()")), signal.SIGUSR2)
    while _value(mesh, "came") != "[1]":
        """The signal is on its way."""
    assert _value(mesh, "signal.signal(signal.SIGUSR2, former) is late") == "True"


def _value(mesh: Mesh, source: str) -> str:
    """What a cell gives on the only rank."""
    (data,) = mesh.run(source).finished.get(30).progress.outcomes.values()
    outcome = msgspec.msgpack.decode(data, type=Outcome)
    assert outcome.value is not None, outcome
    return outcome.value.text


@pytest.mark.slow
def test_processes_that_a_cell_spawns_get_its_classes_and_functions(mesh: Mesh) -> None:
    assert _value(mesh, SOURCE) == "[42, 42, 42]"


def test_a_full_collection_copies_nothing_of_what_ranks_share(mesh: Mesh) -> None:
    _value(mesh, "import gc, psutil\nuss = lambda: psutil.Process().memory_full_info().uss\nuss()")
    grown = int(_value(mesh, "before = uss()\ngc.collect()\nuss() - before"))
    assert grown < 2 << 20, "bytes that this rank has of its own now"
