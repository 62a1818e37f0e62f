"""`Mesh.execute` on real ranks: values, errors by the rules of a cell, lost ranks, and the loop that survives them."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from meshbook.kernel.execute import tell_by
from meshbook.kernel.failures.interrupted import Interrupted
from meshbook.kernel.mesh import Mesh
from meshbook.kernel.run import Said
from meshbook.kernel.sources.export import Setting, script
from meshbook.runtime.errors import DeviceMeshError, MeshError
from meshbook.runtime.healing import heal_mesh
from tests.kernel.cells import SUM, lose, ran, values

pytestmark = [pytest.mark.slow, pytest.mark.real]


@pytest.fixture(scope="module")
def mesh(engine: str) -> Iterator[Mesh]:
    """One mesh for all; each test leaves it whole."""
    with Mesh.up("m", {"dp": 2, "tp": 2}, engine=engine, path=sys.path) as mesh:
        ran(mesh, "import os, time, torch, torch.distributed as dist", name="cell 1")
        assert values(mesh, SUM) == ["10.0"] * 4
        yield mesh


@pytest.fixture(autouse=True)
def shared(mesh: Mesh, leaks: Any) -> Iterator[None]:
    """The mesh outlives each test, with new processes and logs: no leak."""
    yield
    if mesh.roster.dead():
        mesh.heal()
    leaks.allow_what_stands()


def notebook(source: str) -> dict[str, Any]:
    """The names of a notebook after a cell: its functions travel by value."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, "<ipython-input-7-00002328>", "exec"), names)
    return names


def test_a_value_a_rank_on_the_axes_of_the_mesh(mesh: Mesh) -> None:
    f = notebook("def f(x, k=0): return rank * x + k")["f"]
    found = mesh.execute(f, 10, k=1)
    assert found.values() == [1, 11, 21, 31]
    assert found.item(dp=1, tp=0) == 21
    assert found.slice(dp=1).values() == [21, 31]


def test_large_values_and_arguments(mesh: Mesh) -> None:
    import numpy

    f = notebook("def f(x): return x * (rank + 1)")["f"]
    found = mesh.execute(f, numpy.ones(3_000_000))
    assert [value.sum() for value in found.values()] == [3e6, 6e6, 9e6, 12e6]
    found.get(0)[0] = 7  # it is mine


def test_it_communicates_and_leaves_names_to_cells(mesh: Mesh) -> None:
    build = notebook(
        "def build():\n    global total\n    total = torch.ones(1)\n    dist.all_reduce(total, group=group)"
    )
    assert mesh.execute(build["build"]).values() == [None] * 4
    assert values(mesh, "total.item()") == ["4.0"] * 4


def test_a_rank_that_raises_ends_it_and_those_that_wait_are_released(mesh: Mesh) -> None:
    f = notebook("def f():\n    if rank == 2: raise ValueError('boom')\n    dist.barrier()")["f"]
    with pytest.raises(MeshError) as caught:
        mesh.execute(f)
    assert not isinstance(caught.value, DeviceMeshError)
    assert str(caught.value) == "1 of 4 ranks failed (dp=1,tp=0)"
    assert "dp=1,tp=0  ValueError: boom\n" in "".join(traceback.format_exception(caught.value))
    assert isinstance(caught.value.by_rank[2], ValueError)
    assert "was at cell 7 line 3, waiting in barrier; interrupted, state kept" in caught.value.story
    assert "process groups renewed, as they were out of step" in caught.value.story
    assert mesh.last_failed == (2,)
    assert values(mesh, SUM) == ["10.0"] * 4


SAVES = """def f(folder):
    if rank == 2:
        raise ValueError("boom")
    try:
        dist.barrier()
    finally:
        if rank == 3:
            dist.barrier()
        time.sleep(0.7)
        open(f"{folder}/{rank}", "w").close()
"""


def test_who_waits_for_one_that_raises_can_save_what_it_has(mesh: Mesh, tmp_path: Path) -> None:
    """As in a `finally`: it is interrupted once, unless it waits again."""
    with pytest.raises(MeshError) as caught:
        mesh.execute(notebook(SAVES)["f"], tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["0", "1"]
    assert str(caught.value) == "1 of 4 ranks failed (dp=1,tp=0)"
    assert values(mesh, SUM) == ["10.0"] * 4


CHILD = """
import sys
reading, writing = os.pipe()
if not (pid := os.fork()):
    sys.stderr = os.fdopen(writing, "w")
    {end}
os.close(writing)
with os.fdopen(reading) as told:
    text = told.read()
f"{{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}} {{text}}"
"""


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("sys.exit(3)", "3 "),
        ("1 / 0", r"1 Traceback .*\n  cell \d+, line 6, in <module>\n    1 / 0\n( .*\n)?ZeroDivisionError: .*\n"),
        ("await __import__('asyncio').sleep(0); sys.exit(2)", "2 "),
    ],
)
def test_a_child_that_a_cell_forks_ends_as_a_program_does(mesh: Mesh, end: str, told: str) -> None:
    [text] = values(mesh, CHILD.format(end=end), [0])
    assert re.fullmatch(told, ast.literal_eval(text)), text


def test_a_child_that_a_function_forks_ends_so_too(mesh: Mesh) -> None:
    f = notebook(
        "def f():\n    if not (pid := os.fork()):\n        raise SystemExit(3)\n    return os.waitpid(pid, 0)[1]"
    )
    assert mesh.execute(f["f"]).values() == [3 << 8] * 4


VICTIM = """
def f():
    if rank == 3:
        os.kill(os.getpid(), 9)
    dist.all_reduce(torch.ones(1))
"""


def test_a_rank_that_dies_is_lost_and_those_connected_to_it_are_not_blamed(mesh: Mesh) -> None:
    with pytest.raises(DeviceMeshError) as caught:
        mesh.execute(notebook(VICTIM)["f"])
    assert str(caught.value) == "1 of 4 ranks lost (dp=1,tp=1)"
    assert caught.value.lost == (3,)
    assert "killed by SIGKILL" in caught.value.story
    # Its neighbours in the ring: whether the third one hears of it before the grace is over, gloo decides.
    assert "lost its connection to a rank that is gone, at cell 7 line 5; state kept" in caught.value.story
    assert "pair.cc" not in caught.value.story
    assert mesh.last_failed == (3,)
    with pytest.raises(DeviceMeshError, match=r"1 of 4 ranks lost \(dp=1,tp=1\)") as again:
        mesh.execute(notebook("def f():\n    global ran\n    ran = True")["f"])
    assert "nothing was run" in again.value.story
    assert "nothing was run" in "".join(traceback.format_exception(again.value))
    assert values(mesh, "'ran' in globals()") == ["False"] * 3
    assert heal_mesh(mesh) is mesh
    assert values(mesh, SUM) == ["10.0"] * 4


def test_whoever_fails_by_itself_beside_a_death_is_blamed(mesh: Mesh) -> None:
    f = notebook(
        VICTIM + "\nf0 = f\ndef f():\n    if rank == 0: raise RuntimeError('Connection closed by peer')\n    f0()"
    )
    with pytest.raises(DeviceMeshError) as caught:
        mesh.execute(f["f"])
    assert str(caught.value) == "1 of 4 ranks failed, 1 lost (dp=0,tp=0 · dp=1,tp=1)"
    assert "RuntimeError: Connection closed by peer" in caught.value.story


def test_the_resilient_loop(mesh: Mesh) -> None:
    names = notebook(
        "def build():\n    global net, step\n    torch.manual_seed(0)\n"
        "    net, step = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1)), 0\n"
        "def train(n, dies):\n    global step\n    for step in range(step + 1, n + 1):\n"
        "        if dies and rank == 1 and step == 3: os.kill(os.getpid(), 9)\n"
        "        net(torch.ones(1, 2) * rank).sum().backward()\n    return net.module.weight.grad.sum().item()"
    )
    mesh.execute(names["build"])
    with pytest.raises(DeviceMeshError) as caught:
        mesh.execute(names["train"], 5, True)
    assert caught.value.lost == (1,)
    heal_mesh(mesh)
    mesh.execute(names["build"])
    [grad] = set(mesh.execute(names["train"], 5, False).values())
    assert grad == pytest.approx(5 * 2 * 1.5)


def test_ctrl_c_interrupts_the_ranks(mesh: Mesh) -> None:
    f = notebook("def f():\n    print('in', flush=True)\n    time.sleep(60)")["f"]
    presser: Any = Presser()
    tell_by(lambda ranks: presser)
    started = time.monotonic()
    try:
        with pytest.raises(Interrupted, match=r"interrupted: ranks 0-3 at .*; they are idle and keep their state"):
            mesh.execute(f)
    finally:
        tell_by(None)
    assert time.monotonic() - started < 20
    assert values(mesh, "rank") == ["0", "1", "2", "3"]


STOPPED = """
import os, signal, time
from meshbook.kernel.mesh import Mesh

def work(pid):
    os.kill(pid, signal.SIGINT)
    time.sleep(60)

if __name__ == "__main__":
    with Mesh.up("m", {"dp": 1}, backend="none") as mesh:
        mesh.execute(work, os.getpid())
"""


def test_a_script_that_is_stopped_ends_by_the_signal(tmp_path: Path) -> None:
    """The loop of a shell around it would go on otherwise."""
    stopped = tmp_path / "stopped.py"
    stopped.write_text(STOPPED)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, stopped], stderr=subprocess.PIPE, text=True, timeout=60, env=env)
    assert ended.returncode == -signal.SIGINT
    [last] = [line for line in ended.stderr.splitlines() if line.startswith("KeyboardInterrupt")]
    assert last.startswith("KeyboardInterrupt: interrupted: rank 0 at stopped.py line 7; it is idle")


class Presser:
    """Tells nobody, and presses Ctrl-C when all ranks have said something."""

    def __init__(self) -> None:
        self._ranks: set[int] = set()

    def update(self, said: Sequence[Said], now: float) -> None:
        before = len(self._ranks)
        self._ranks |= {rank for rank, _ in said}
        if before < len(self._ranks) == 4:
            os.kill(os.getpid(), signal.SIGINT)

    late = update

    def finish(self, now: float) -> None: ...

    def tell_failures(self, *_: Any) -> None: ...

    def tell_deaths(self, *_: Any) -> None: ...

    def say(self, *_: Any) -> None: ...

    def note(self, *_: Any) -> None: ...


def test_a_function_of_a_module_says_where_it_is(mesh: Mesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mytrain.py").write_text(
        "import torch.distributed as dist\n\ndef train(bad):\n    assert dist.get_rank() != bad\n    dist.barrier()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    ran(mesh, f"import sys\nsys.path.insert(0, {str(tmp_path)!r})")
    with pytest.raises(MeshError) as caught:
        mesh.execute(import_module("mytrain").train, bad=0)
    assert "was at mytrain.py line 5, waiting in barrier; interrupted, state kept" in caught.value.story
    assert "mytrain.py, line 4, in train" in caught.value.story


def test_a_thread_of_the_users_may_call_too(mesh: Mesh) -> None:
    f = notebook("def f(): return rank")["f"]
    found: list[list[int]] = []
    thread = threading.Thread(target=lambda: found.append(mesh.execute(f).values()))
    thread.start()
    thread.join(30)
    assert found == [[0, 1, 2, 3]]


def test_who_was_given_up_is_not_lost(mesh: Mesh) -> None:
    f = notebook(
        "import signal\ndef f():\n    if rank == 0: raise ValueError('x')\n    if rank == 1:\n"
        "        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n"
        "        end = time.monotonic() + 8\n        while time.monotonic() < end: pass\n"
        "        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])"
    )["f"]
    with pytest.raises(MeshError) as caught:
        mesh.execute(f)
    assert not isinstance(caught.value, DeviceMeshError)
    assert str(caught.value) == "1 of 4 ranks failed, 1 not done (dp=0,tp=0-1)"
    mesh.roster.kill([1])
    lose(mesh, [1])


def test_a_script_is_told_on_stderr_what_its_ranks_hang_in(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("meshbook.kernel.waiting.hangs.FIRST", 0.1)
    monkeypatch.setattr("meshbook.kernel.waiting.hangs.PATIENCE", 0.1)
    f = notebook("def f():\n    if rank == 0:\n        dist.barrier()\n    elif rank == 1:\n        time.sleep(600)")[
        "f"
    ]
    said: list[str] = []

    def interrupt_when_told() -> None:
        while "waits in barrier" not in (so_far := "".join(said)) and "Error" not in so_far:
            said.append(capfd.readouterr().err)
            time.sleep(0.01)
        mesh.release([0, 1])

    telling = threading.Thread(target=interrupt_when_told)
    telling.start()
    with pytest.raises(MeshError):
        mesh.execute(f)
    telling.join()
    assert "0 ≠ rank 0 waits in barrier #" in "".join(said) and "python -m meshbook.debug stacks" in "".join(said)
    assert "%" not in "".join(said)
    mesh.mend()


def test_what_a_call_did_is_missing_from_new_ranks_and_scripts_and_both_say_so(mesh: Mesh) -> None:
    ran(mesh, "scale = 2", name="cell 2")
    mesh.execute(notebook("def build():\n    global model\n    model = scale * rank")["build"])
    text = script(Setting(mesh.axes, "cpu", "gloo"), mesh.journal.notes)
    assert "\n# WARNING build() is left out: the notebook called it by `Mesh.execute`" in text
    lose(mesh, [1])
    healed = mesh.heal()
    assert "build()" in healed.left_out and "cell 2" in healed.replayed
