"""Workers of pools and loaders on ranks: their errors, which are raised anew there, and their end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from meshbook.kernel.mesh import Mesh
from meshbook.kernel.outcome import Outcome
from tests.kernel.cells import ran, until_at, values

WORK = "def work(number):\n    return 1 / number\n"

IN_A_LOADER = f"""
import torch
{WORK}
class Numbers(torch.utils.data.Dataset):
    def __len__(self): return 1
    def __getitem__(self, at): return work(at)

list(torch.utils.data.DataLoader(Numbers(), num_workers=1, multiprocessing_context="fork"))
"""

IN_A_POOL = f"""
import multiprocessing
{WORK}
with multiprocessing.get_context("fork").Pool(1) as pool: pool.map(work, [0])
"""

IN_AN_EXECUTOR = f"""
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
{WORK}
with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool: list(pool.map(work, [0]))
"""

SPAWNED = f"""
import torch.multiprocessing
{WORK}
torch.multiprocessing.start_processes(work, nprocs=1, start_method="fork")
"""


@pytest.fixture(scope="module")
def mesh(engine: str) -> Iterator[Mesh]:
    with Mesh.up("others", {"dp": 1}, engine=engine, path=sys.path) as mesh:
        yield mesh


@pytest.fixture
def stays(leaks: Any) -> Iterator[None]:
    """The mesh outlives each test, as do workers of a loader whose error may be looked into."""
    yield
    leaks.allow_what_stands()


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.usefixtures("stays")
@pytest.mark.parametrize(
    ("source", "message"),
    [
        (IN_A_LOADER, "division by zero, in another process"),
        (IN_A_POOL, "division by zero, in another process"),
        (IN_AN_EXECUTOR, "division by zero, in another process"),
        (SPAWNED, "ZeroDivisionError: division by zero, in another process"),
    ],
    ids=["DataLoader", "Pool", "ProcessPoolExecutor", "torch.multiprocessing"],
)
def test_the_users_line_is_that_of_the_other_process(mesh: Mesh, source: str, message: str) -> None:
    run = ran(mesh, source, name="cell 1")
    failure = msgspec.msgpack.decode(run.progress.outcomes[0], type=Outcome).failure
    assert failure is not None
    assert failure.message == message
    assert failure.place == f"cell 1 line {source.splitlines().index('    return 1 / number') + 1}"
    assert failure.frames[-1].source == "return 1 / number"
    assert "Traceback (most recent call last)" in failure.traceback


@pytest.mark.usefixtures("stays")
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_workers_have_what_a_cell_defines(mesh: Mesh, method: str) -> None:
    """In one that does not come of a fork the task could not be read, and its pool waited for ever."""
    cell = f"""
import multiprocessing
class Sum(int): pass
def add(number): return Sum(number + step)
step = 2
with multiprocessing.get_context("{method}").Pool(1) as pool:
    found = pool.map_async(add, [1, 2]).get(25)
found, type(found[0]) is Sum
"""
    assert values(mesh, cell) == ["([3, 4], True)"]


@pytest.mark.usefixtures("stays")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_what_an_interrupted_cell_has_started_is_interrupted_too(mesh: Mesh, method: str) -> None:
    """Trainings that a cell had started by `mp.spawn` went on unseen. A loader or a pool has daemons, and goes on."""
    ran(
        mesh,
        f"""
import multiprocessing, signal, time
context = multiprocessing.get_context("{method}")
def sleep(up):
    up.set()
    time.sleep(1000)
def start(**options):
    up = context.Event()
    process = context.Process(target=sleep, args=(up,), **options)
    process.start()
    assert up.wait(20)
    return process
before = start()
""",
    )
    run = mesh.run("daemon, own = start(daemon=True), start()\nown.join()", name="cell 1")
    until_at(mesh, "cell 1 line 2", [0])
    mesh.interrupt([0], run.call)
    run.finished.get(20)
    assert values(mesh, "own.join(20)\nown.exitcode, before.exitcode, daemon.exitcode") == ["(1, None, None)"]
    assert values(mesh, "for each in (before, daemon): each.kill(), each.join()\n'gone'") == ["'gone'"]


@pytest.mark.usefixtures("stays")
@pytest.mark.parametrize(
    "line",
    [
        "with ProcessPoolExecutor(1, multiprocessing.get_context('fork')) as e: e.submit(doze).result()",
        "os.system(command)",
        "subprocess.Popen(['sh', '-c', command]).wait()",
        "os.popen(command).read()",
    ],
    ids=["executor", "system", "Popen", "popen"],
)
def test_what_waits_for_what_it_has_started_ends(mesh: Mesh, line: str, tmp_path: Path) -> None:
    """The end of a `with` of an executor, and `os.system`, heard nothing; and nobody told the command of a `Popen`."""
    began = tmp_path / "began"
    os.mkfifo(began)
    ran(
        mesh,
        "import multiprocessing, os, pathlib, subprocess, time\nfrom concurrent.futures import ProcessPoolExecutor\n"
        f"command = 'echo so > {began}; exec sleep 1000'\n"
        f"def doze():\n    pathlib.Path({str(began)!r}).write_text('so')\n    time.sleep(1000)",
    )
    run = mesh.run(f"ended = False\n{line}\nended = True", name="cell 1")
    assert began.read_text().strip() == "so"
    mesh.interrupt([0], run.call)
    run.finished.get(20)
    assert values(mesh, "ended") == ["False"]
    commands = "[each for each in psutil.Process().children() if each.name() == 'sleep']"
    assert values(mesh, f"import psutil\npsutil.wait_procs({commands}, 20)[1]") == ["[]"]


def test_a_rank_leaves_at_once_that_has_pools_open(engine: str) -> None:
    """`multiprocessing` waited for workers of the one, who were told by nobody, until the rank was killed."""
    with Mesh.up("pools", {"dp": 1}, engine=engine, path=sys.path) as mesh:
        run = ran(
            mesh,
            "import multiprocessing, time\nfrom concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor\n"
            "processes = ProcessPoolExecutor(1, multiprocessing.get_context('fork'))\nprocesses.submit(int).result()\n"
            "threads = ThreadPoolExecutor(1)\nthreads.submit(time.sleep, 1000)",
        )
        assert not run.progress.failed
        assert mesh.down(grace=10) == {0: "exited with code 0"}
