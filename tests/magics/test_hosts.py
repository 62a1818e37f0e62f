"""`%mesh up --engine hosts`: a mesh over several hosts in a notebook, which are processes on this machine here."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Callable, Generator

import psutil
import pytest

from tests.magics.front_end import Kernel
from tests.profiles import leave_torch_out

pytestmark = [pytest.mark.slow, pytest.mark.real]

Until = Callable[..., None]

HAS_MONARCH = importlib.util.find_spec("monarch") is not None

UP = "%mesh up far hosts=2 gpus=2 --engine hosts --device cpu"


@pytest.fixture
def far(kernel: Kernel) -> Generator[Kernel]:
    """The kernel with a mesh of two ranks on each of two hosts."""
    kernel.ok(UP)
    yield kernel
    kernel.ok("%mesh down far --grace 0.2")


def is_agent(process: psutil.Process) -> bool:
    try:
        return "remote_agent" in " ".join(process.cmdline())
    except psutil.ZombieProcess:  # it has ended
        return False


def agents(kernel: Kernel) -> list[int]:
    """The agents of the two hosts, in order."""
    found = [each for each in psutil.Process(kernel.pid).children() if is_agent(each)]
    return [each.pid for each in sorted(found, key=lambda each: each.create_time())]


def test_cells_collectives_slices_a_dead_rank_and_a_lost_host(far: Kernel) -> None:
    """On one mesh, as the zygotes of both hosts import torch."""
    compute_and_lose_a_rank(far)
    lose_a_host(far)


def compute_and_lose_a_rank(far: Kernel) -> None:
    ended = far.ok(
        "%%on_mesh\nimport os, torch, torch.distributed as dist\nx = torch.ones(2) * rank\n"
        "dist.all_reduce(x)\nx.sum().item()"
    )
    assert "ranks 0-3" in ended.text and "12.0" in ended.text
    assert "ranks 2-3" in far.ok("%%on_mesh hosts=1\n'host1'").text
    assert "ranks 0,2" in far.ok("%%on_mesh local_rank=0\nint(os.environ['LOCAL_RANK'])").text
    assert "in a cell" in far.ok("%%on_mesh gpus=0\nprint('in a cell')").text
    ended = far.cell("%%on_mesh --grace 0.5\nimport os, time\nif rank == 3: os.kill(os.getpid(), 9)\ntime.sleep(30)")
    assert "rank 3 (hosts=1,gpus=1, pid" in ended.stderr
    assert "killed by SIGKILL (signal 9) on host host1" in ended.stderr
    far.ok("%mesh restart @dead")
    assert (
        "ranks 0-3"
        in far.ok(
            "%%on_mesh\nimport torch, torch.distributed as dist\ny = torch.ones(1)\ndist.all_reduce(y)\ny.item()"
        ).text
    )


def lose_a_host(far: Kernel) -> None:
    """It is told in the cell, and comes back."""
    cell = far.start("%%on_mesh --grace 0.5\nprint('in', flush=True)\nimport time\ntime.sleep(60)")
    cell.until("in")
    os.kill(agents(far)[1], signal.SIGKILL)
    ended = cell.end()
    assert "ended: host host1 was lost: its agent" in ended.stderr
    assert "host host1 was lost" in ended.traceback
    assert "2 dead" in far.ok("%mesh").text
    far.ok("%mesh restart @dead")
    assert (
        "ranks 0-3"
        in far.ok(
            "%%on_mesh\nimport torch, torch.distributed as dist\ny = torch.ones(1)\ndist.all_reduce(y)\ny.item()"
        ).text
    )


@pytest.mark.skipif(HAS_MONARCH, reason="torchmonarch is here")
def test_without_monarch_it_says_how_to_get_it(kernel: Kernel) -> None:
    error = kernel.cell("%mesh up x hosts=2 --engine monarch").error
    assert "Monarch is not installed: pip install 'meshbook[monarch]', on Linux, or use --engine hosts" in error


@pytest.mark.skipif(not HAS_MONARCH, reason="torchmonarch is missing")
def test_monarch_places_the_agents(new_kernel: Callable[[], Kernel]) -> None:
    kernel = new_kernel()
    kernel.ok("%load_ext meshbook")
    ended = kernel.ok("%mesh up far hosts=2 gpus=2 --engine monarch --device cpu")
    assert "Warning" not in ended.stderr
    run = "%%on_mesh\nimport torch, torch.distributed as dist\ny = torch.ones(1)\ndist.all_reduce(y)\ny.item()"
    ended = kernel.ok(run)
    assert "ranks 0-3" in ended.text and "4.0" in ended.text
    placed = [each for each in psutil.Process(kernel.pid).children(recursive=True) if is_agent(each)]
    assert len(placed) == 2
    cell = kernel.start("%%on_mesh --grace 0.5\nprint('in', flush=True)\nimport time\ntime.sleep(60)")
    cell.until("in")
    placed[1].kill()
    assert "was lost: its agent" in cell.end().stderr
    kernel.ok("%mesh restart @dead")
    assert "ranks 0-3" in kernel.ok(run).text
    kernel.ok("%mesh down far --grace 0.2")
    assert not [each for each in psutil.Process(kernel.pid).children(recursive=True) if is_agent(each)]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("%mesh up x dp=2 --engine hosts", "how many hosts? Say --hosts N or --hosts A,B"),
        ("%mesh up x dp=2 --hosts a,b", "--launch and --hosts go with --engine hosts"),
        ("%mesh up x dp=2 --hosts 2", "--hosts goes with --engine hosts, or monarch"),
        ("%mesh up x dp=2 --job j", "--job goes with --engine monarch"),
        ("%mesh up x dp=2 --engine monarch --job nothing", "there is no variable 'nothing'; write process, slurm, "),
        ("%mesh up x dp=2 --engine monarch --job m", "--job: 'm' holds a Mesh; write process, slurm, "),
        ("%mesh up x dp=2 --engine monarch --job slurm", "how many hosts? Say --hosts N, or begin the axes with"),
        ("%mesh up x dp=2 --engine monarch --hosts a,b", "--launch and --hosts go with --engine hosts"),
        (
            "%mesh up x hosts=2 --engine monarch --job slurm --job-option partitoin=gpu",
            "--job slurm has no option 'partitoin': did you mean 'partition'?",
        ),
        ("%mesh up x hosts=2 --engine monarch --job-option partition=gpu", "--job-option goes with --job: write it"),
        ("%mesh up x dp=2 --engine hosts --hosts a,a", "'a,a' is not a number of hosts nor their names"),
        (
            "%mesh up x hosts=2 --engine hosts --launch 'ssh {host}'",
            "which hosts? `ssh {host}` starts each by its name",
        ),
        (
            "%mesh up x dp=2 --engine hosts --hosts b,c",
            'nothing starts agents on b, c: say how, such as --launch "ssh {host}"; --hosts 2 starts so many on this',
        ),
        ("%mesh up x dp=2 --engine hosts --hosts b:26600", "of a worker loop that waits there, say tcp://b:26600"),
        ("%mesh up x hosts=3 --engine hosts --hosts 2", "hosts=3, and there are 2 hosts"),
        ("%mesh up x hosts=2 --engine hosts --hosts a,b --launch 'sh -c \"echo no {host}; exit 3\"'", "no a"),
    ],
)
def test_what_cannot_be(kernel: Kernel, line: str, why: str) -> None:
    assert why in kernel.cell(line).error
    assert agents(kernel) == []


def test_kept_hosts_are_there_after_a_restart_of_the_kernel(
    new_kernel: Callable[..., Kernel], gone: Callable[..., None]
) -> None:
    kernel = new_kernel(prepare=leave_torch_out)
    kernel.ok("%load_ext meshbook")
    kernel.ok("%mesh up hosts=2 gpus=1 --engine hosts --device cpu --pg none --keep 10m")
    kept = agents(kernel)
    assert "in use" in kernel.ok("%mesh ls --all").text
    kernel.restart()
    kernel.ok("%load_ext meshbook")
    assert "no mesh: " in kernel.ok("%mesh ls --all").text
    listed = kernel.ok("%mesh ls --all").text
    assert "kept hosts of m0   host0, host1 · free until " in listed and "host hours" in listed
    assert "no hosts are kept of a mesh 'other': there are those of m0" in kernel.cell("%mesh attach other").error
    attached = kernel.ok("%mesh attach")
    assert "on hosts that were kept since " in attached.text
    assert kernel.ok("%%on_mesh\nrank + 1").text.splitlines()[1].startswith("2   rank 1")
    assert all(map(psutil.pid_exists, kept))
    kernel.ok("%mesh down --detach")
    assert "free until" in kernel.ok("%mesh ls --all").text
    # The same line finds them too, and what fails for a reason of its own gives nothing back.
    assert "there are 2 hosts" in kernel.cell("%mesh up hosts=3 --engine hosts --hosts 2 --keep 10m").error
    assert "free until" in kernel.ok("%mesh ls --all").text
    again = kernel.ok("%mesh up m1 hosts=2 gpus=2 --engine hosts --device cpu --pg none --keep 10m")
    assert "on hosts that were kept since " in again.text
    kernel.ok("%mesh down")
    assert "no hosts are kept" in kernel.ok("%mesh ls --all").text
    gone(dict(enumerate(kept)))


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("up dp=2 --keep 1h", "--keep goes with --engine hosts: write it too"),
        ("up hosts=2 --engine hosts --keep soon", "'soon' is not a time over 0, such as 30m or 2h"),
        ("attach", "no hosts are kept: `%mesh up ... --engine hosts --keep 1h` keeps them for the next time"),
    ],
)
def test_mistakes_about_kept_hosts_are_told(kernel: Kernel, line: str, part: str) -> None:
    assert part in kernel.cell(f"%mesh {line}").error
