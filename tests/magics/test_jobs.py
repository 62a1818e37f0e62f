"""`%mesh up --engine monarch --job KIND`: Slurm is a stand-in on this machine, Monarch is Monarch."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.magics import slurm
from tests.magics.front_end import Kernel

pytestmark = [
    pytest.mark.slow,
    pytest.mark.real,
    pytest.mark.skipif(importlib.util.find_spec("monarch") is None, reason="torchmonarch is missing"),
]


UP = "%mesh up far hosts=2 gpus=1 --engine monarch --device cpu --pg none --job "


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Slurm's, which come first in `PATH`."""
    slurm.install(tmp_path, sys.executable)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("MESHBOOK_ADDR", "127.0.0.1")
    return tmp_path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_slurm_by_name_and_an_allocation_that_ends_under_a_cell(
    new_kernel: Callable[[], Kernel], commands: Path, tmp_path: Path, gone: Callable[..., None]
) -> None:
    kernel = new_kernel()
    kernel.ok("%load_ext meshbook")
    wrong = kernel.cell(f"{UP}slurm --job-option partition=gpuu")
    assert "--job slurm: Failed to submit SLURM job: sbatch: error: invalid partition specified: gpuu" in wrong.error
    options = {"partition": "gpu", "monarch_port": free_port(), "log_dir": tmp_path, "exclusive": "no"}
    line = UP + "slurm" + "".join(f" --job-option {name}={value}" for name, value in options.items())
    kernel.ok(line)
    assert "ranks 0-1" in kernel.ok("%%on_mesh\n'there'").text
    ranks = kernel.pids("far")
    cell = kernel.start("%%on_mesh --grace 0.5\nprint('in', flush=True)\nimport time\ntime.sleep(60)")
    cell.until("in")
    subprocess.run([commands / "scancel", "7"], check=True)
    ended = cell.end()
    assert "was lost: its agent is gone" in ended.text or "was lost: its agent has ended" in ended.text
    gone(ranks)
    assert kernel.value("1 + 1") == 2  # the notebook lives
    kernel.ok("%mesh down far --grace 0.2")


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[list[str]]:
    """Two loops of Monarch's that wait for somebody."""
    addresses = [f"ipc://{tmp_path}/{number}" for number in range(2)]
    program = "from monarch.actor import run_worker_loop_forever as run; run(ca='trust_all_connections', address={!r})"
    loops = [subprocess.Popen([sys.executable, "-c", program.format(address)]) for address in addresses]
    yield addresses
    for loop in loops:
        for child in psutil.Process(loop.pid).children(recursive=True):
            child.kill()
        loop.kill()
        loop.wait()


def test_workers_that_are_there_are_attached_to_and_left(
    new_kernel: Callable[[], Kernel], workers: list[str], tmp_path: Path
) -> None:
    kernel = new_kernel()
    kernel.ok("%load_ext meshbook")
    nobody = f"ipc://{tmp_path}/nobody"
    error = kernel.cell(f"{UP}attach --job-option workers={nobody} --ready-timeout 2").error
    assert f"--job attach: not all of {nobody} have answered in 2 s" in error
    kernel.ok(f"{UP}attach --job-option workers={','.join(workers)}")
    assert "ranks 0-1" in kernel.ok("%%on_mesh\n'there'").text
    kernel.ok("%mesh down far --grace 0.2")
