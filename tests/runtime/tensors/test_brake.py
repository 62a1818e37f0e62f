"""Ctrl-C while ranks compute."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from meshbook.runtime import ProcMesh, errors
from meshbook.runtime.controller.gather import Gather
from meshbook.runtime.mesh import roster_of
from meshbook.runtime.tensors import RemoteException, dispatch, fetch_shard, inspect, remote
from meshbook.runtime.tensors.brake import Progress
from meshbook.runtime.tensors.dispatch import dispatcher_of
from meshbook.runtime.wire.messages import Sample


def test_what_is_left_out() -> None:
    progress = Progress()
    assert [progress.begin(number) for number in (1, 2)] == [True, True]
    assert progress.hold() == 2
    progress.go_on(range(4, 7))
    progress.go_on(range(8, 9))
    assert [number for number in range(3, 11) if progress.begin(number)] == [3, 7, 9, 10]


def test_one_that_is_held_waits(until: Any) -> None:
    progress, begun = Progress(), list[bool]()
    assert progress.hold() == 0
    worker = threading.Thread(target=lambda: begun.append(progress.begin(5)))
    worker.start()
    until(lambda: progress.hold() == 5)
    assert begun == []
    progress.go_on(range(5, 9))
    worker.join()
    assert begun == [False]


def nap(tensor: torch.Tensor, gate: str) -> torch.Tensor:
    """Say that it has begun, and wait until it may go on."""
    Path(gate).touch()
    while Path(gate).exists():
        time.sleep(0.005)
    return tensor


def press(when: Callable[[], object]) -> threading.Thread:
    """Press Ctrl-C then."""

    def work() -> None:
        when()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def wait_in_collectives(procs: ProcMesh, ranks: list[int]) -> bool:
    """Whether all these ranks do."""
    gather = Gather(roster_of(procs), ranks, "sample")
    roster_of(procs).inquire(ranks, gather, Sample)
    return gather.wait(10) and all(sample.waiting for sample in gather.answers.values())


@pytest.mark.real
@pytest.mark.parametrize("waits", ["inspect", "a future", "too far ahead", "inspect, and stop is pressed again"])
def test_what_has_not_begun_is_left_out_on_all_ranks(
    grid: ProcMesh, tmp_path: Path, until: Any, waits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "again" in waits:
        leave_out = dispatch.leave_out
        again = lambda *args: (signal.raise_signal(signal.SIGINT), leave_out(*args))  # noqa: E731
        monkeypatch.setattr(dispatch, "leave_out", again)
    gate = tmp_path / "gate"
    x: Any
    with grid.activate():
        x, total = torch.ones(2), torch.zeros(2)
    total += 1
    # One rank is slow. The others have begun what comes next, a collective among all, and wait for it there.
    remote(nap, propagate="inspect")(x.slice_mesh(dp=1, tp=1), str(gate))
    common = x.reduce()
    total += 1
    later = x + 1
    others = [slice_.slice_mesh(dp=0) for slice_ in (x, common)]
    waiting = dispatcher_of(grid)._reactor._waiting

    def is_time() -> bool:
        is_waited_for = gate.exists() and threading.main_thread().ident in waiting
        return is_waited_for and wait_in_collectives(grid, [0, 1, 2])

    presser = press(lambda: until(is_time, 40.0))  # process groups are made first, on a machine that may be busy
    with pytest.raises(KeyboardInterrupt):
        if "inspect" in waits:
            inspect(later)
        elif waits == "a future":
            fetch_shard(later).get()
        else:
            for _ in range(dispatch.BATCH * (dispatch.AHEAD + 3)):
                total += 0
    presser.join()
    gate.unlink()
    assert inspect(common).tolist() == [4, 4], "what some had begun is done by all"
    assert len({tuple(inspect(total, dp=dp, tp=tp).tolist()) for dp in (0, 1) for tp in (0, 1)}) == 1
    assert [inspect(each).tolist() for each in others] == [[1, 1], [4, 4]]
    with pytest.raises(RemoteException, match="KeyboardInterrupt: it was not computed, as the program was interrupted"):
        inspect(later)
    assert inspect(x + 2).tolist() == [3, 3], "and it goes on"


@pytest.mark.real
def test_what_is_about_to_be_sent_is_not_lost(grid: ProcMesh, monkeypatch: pytest.MonkeyPatch) -> None:
    with grid.activate():
        total = torch.zeros(2)
    inspect(total)
    monkeypatch.setattr(dispatch, "LINGER", 60.0)
    total += 1
    dispatcher = dispatcher_of(grid)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(dispatcher, "_take_dropped", lambda shape: signal.raise_signal(signal.SIGINT) or [])
        inspect(total)
    assert inspect(total).tolist() == [1, 1]


@pytest.mark.real
def test_a_press_that_hits_us_is_shown_without_our_frames(grid: ProcMesh, monkeypatch: pytest.MonkeyPatch) -> None:
    with grid.activate():
        x = torch.zeros(2)
    inspect(x)
    marked: list[BaseException] = []
    monkeypatch.setattr(errors, "mark", [marked.append])
    monkeypatch.setattr(dispatcher_of(grid), "_add", lambda *_: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt) as stopped:
        _ = x + 1
    assert {*marked} == {stopped.value}


@pytest.mark.real
def test_of_a_mesh_that_was_taken_down_there_is_nothing_to_leave_out(process_stage: Any) -> None:
    procs = process_stage.procs({"r": 1})
    with procs.activate():
        _ = torch.zeros(1)
    dispatcher = dispatcher_of(procs)
    procs.stop().get(10)
    dispatcher.interrupted()
    assert dispatcher.is_over


def test_no_line_of_python_runs_as_a_tensor_goes(grid: ProcMesh) -> None:
    """Ctrl-C would be swallowed there: 3 of 1,200 presses were in a program that does little else."""
    with grid.activate():
        x = torch.ones(2)
    del x  # what runs once only
    with grid.activate():
        y = torch.ones(2)
    ran: list[str] = []
    sys.setprofile(lambda frame, event, _: ran.append(f"{event} {frame.f_code.co_qualname}"))
    try:
        del y
    finally:
        sys.setprofile(None)
    assert [each for each in ran if each.startswith("call ")] == []


STRUCK = """
import signal, sys, torch
from meshbook import this_host
from meshbook.runtime.tensors import inspect

class Presses:
    def find_spec(self, name, *_):
        if name == "sympy.core.expr":
            signal.raise_signal(signal.SIGINT)

assert "sympy" not in sys.modules
sys.meta_path.insert(0, Presses())
with this_host().spawn_procs({"gpus": 2}) as procs:
    try:
        with procs.activate():
            torch.ones(2)
    except KeyboardInterrupt:
        print("stopped")
    with procs.activate():
        print(inspect((torch.ones(2) + 1).sum()).item())
"""


@pytest.mark.real
@pytest.mark.slow
def test_a_press_into_the_first_operation_leaves_torch_whole() -> None:
    """It imports its compiler then."""
    done = subprocess.run([sys.executable, "-c", STRUCK], capture_output=True, text=True, timeout=60)
    assert done.stdout == "stopped\n4.0\n", done.stdout + done.stderr
