"""A rank that was stopped: the cell says so, `@stuck` selects it, it can be let go on or ended."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Generator

import pytest

from tests.magics.front_end import Kernel
from tests.magics.hurry import hurried
from tests.stopping import stop

pytestmark = [
    pytest.mark.slow,
    pytest.mark.real,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]


@pytest.fixture(scope="module", autouse=True)
def hurry(shared_kernel: Kernel) -> Generator[None]:
    """Ranks that do not move are told after parts of a second."""
    with hurried(shared_kernel, "meshbook.kernel.waiting.halts", PACE=0.2, SURE=0.1):
        yield


@pytest.fixture
def spare(kernel: Kernel) -> Generator[Kernel]:
    """The kernel with a mesh of three ranks that may be stopped."""
    kernel.ok("spare = %mesh up spare dp=3 --device cpu --pg none")
    kernel.ok("%%on_mesh\nimport time")
    yield kernel
    kernel.ok("%mesh down spare --grace 0.2")


def test_a_stopped_rank_is_told_while_the_cell_waits_and_so_is_its_going_on(
    spare: Kernel, until: Callable[..., None]
) -> None:
    pid = spare.pids()[1]
    cell = spare.start("%%on_mesh\nprint('in')\ntime.sleep(0.2)\nrank")
    cell.until("in")
    stop(pid)
    stopped = time.monotonic()
    cell.until("stopped (SIGSTOP)")
    assert time.monotonic() - stopped < 6  # about 1.4 on an idle machine; the promise is 3
    os.kill(pid, signal.SIGCONT)
    ended = cell.end()
    advice = f"kill -CONT {pid} goes on, `%mesh interrupt 1 --kill` ends it"
    host = spare.host(1, "spare")
    assert f"  1 ‖ rank 1 (dp=1, pid {pid}) on host {host}: stopped (SIGSTOP): {advice}\n" in ended.stderr
    assert ended.status == "ok"
    until(lambda: "stuck" not in spare.ok("%mesh").text)


@pytest.mark.differs("hosts", "what `%mesh` shows of processes is up to half a second old")  # so each is told alone
def test_its_going_on_is_told(spare: Kernel) -> None:
    pids = spare.pids()
    cell = spare.start("%%on_mesh\nprint('in')\ntime.sleep(60)")
    cell.until("in")
    stop(pids[0])
    stop(pids[2])
    cell.until("stopped (SIGSTOP)")
    assert f"kill -CONT {pids[0]} {pids[2]} goes on, `%mesh interrupt @stuck --kill`" in cell.text
    for rank in (0, 2):
        os.kill(pids[rank], signal.SIGCONT)
    cell.until("0,2 ▶ go on after")
    spare.interrupt()
    assert cell.end().error.startswith("KeyboardInterrupt: interrupted: ranks 0-2 at cell")


def test_an_idle_rank_that_was_stopped_is_stuck_and_can_be_ended(spare: Kernel, until: Callable[..., None]) -> None:
    pid = spare.pids()[2]
    stop(pid)
    until(lambda: "1 stuck" in spare.ok("%mesh").text)
    status = spare.ok("%mesh status @stuck").text
    assert "‖ rank 2 (dp=2)  stuck" in status
    assert "stopped (SIGSTOP)" in status
    assert "rank 0" not in status
    spare.ok("%mesh interrupt @stuck --kill")
    until(lambda: "2 idle, 1 dead" in spare.ok("%mesh").text)
    assert spare.cell("%mesh status @stuck").status == "error"


def test_a_timeout_says_that_a_rank_was_stopped(spare: Kernel) -> None:
    pid = spare.pids()[0]
    stop(pid)
    failed = spare.cell("%%on_mesh -t 0.1\nrank")
    assert failed.error == "MeshError: 1 of 3 ranks not done (dp=0)"
    assert "did not react and is stopped (SIGSTOP)" in failed.traceback
    os.kill(pid, signal.SIGCONT)
    assert spare.ok("%on_mesh -- rank * 10").text.startswith("0    rank 0")


def test_a_mesh_with_a_stopped_rank_goes_down_at_once(spare: Kernel, until: Callable[..., None]) -> None:
    spare.ok("%mesh up other dp=2 --pg none")
    stop(spare.pids("other")[1])
    until(lambda: "1 stuck" in spare.ok("%mesh").text)
    ended = spare.ok("%mesh down other --grace 20")
    assert ended.seconds < 10
    assert "rank 1 killed by SIGKILL" in ended.text
