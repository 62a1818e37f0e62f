"""`%mesh` from a subshell while a cell runs: another console of the same kernel looks and lends a hand."""

from __future__ import annotations

import pytest

from tests.magics.front_end import Kernel

pytestmark = [pytest.mark.slow, pytest.mark.real]


def test_interrupt(kernel: Kernel) -> None:
    pids = kernel.pids()
    cell = kernel.start("%%on_mesh\nprint('in')\nwhile True: pass")
    cell.until_all(4, "in")
    assert kernel.start_aside("%mesh interrupt dp=0").end().text == "interrupted: ranks 0-1\n"
    while "2 busy" not in kernel.start_aside("%mesh").end().text:
        pass
    assert kernel.start_aside("%mesh interrupt").end().text == "interrupted: ranks 2-3\n"
    ended = cell.end()
    assert ended.error == "MeshError: 4 of 4 ranks interrupted (dp=0-1,tp=0-1)"
    assert "interrupted by `%mesh interrupt`, at cell" in ended.traceback
    assert kernel.pids() == pids


def test_what_stops_ranks_means_all_of_them_whatever_cells_run_on(kernel: Kernel) -> None:
    kernel.ok("%mesh use m[dp=0]")
    cell = kernel.start("%%on_mesh dp=1\nprint('in')\nwhile True: pass")
    cell.until_all(2, "in")
    assert kernel.start_aside("%mesh ledger").end().status == "ok"
    assert kernel.start_aside("%mesh interrupt").end().text == "interrupted: ranks 2-3\n"
    assert cell.end().error == "MeshError: 2 of 2 ranks interrupted (dp=1,tp=0-1)"
    assert "in\n" in kernel.ok("%mesh logs -n 1").stdout
    kernel.ok("%mesh use m")


def test_stop_reaches_a_cell_of_a_subshell_while_the_notebook_rests(kernel: Kernel) -> None:
    for _ in range(2):
        cell = kernel.start_aside("%%on_mesh\nprint('in')\nwhile True: pass")
        cell.until_all(4, "in")
        kernel.interrupt()
        assert cell.end().error.startswith("KeyboardInterrupt: interrupted: ranks 0-3 at cell")
    kernel.interrupt()  # nothing runs that it could hit


def test_where_ranks_spend_their_time(kernel: Kernel) -> None:
    cell = kernel.start("%%on_mesh\nprint('in')\nwhile True: pass")
    cell.until_all(4, "in")
    told = kernel.start_aside("%mesh profile --for 0.5").end()
    assert told.text.startswith("where ranks 0-3 were in ")
    assert "\n   100 %  cell " in told.text and ", line 3  while True: pass\n" in told.text
    kernel.interrupt()
    assert cell.end().status == "error"


def test_unstick_and_where_everybody_is(kernel: Kernel) -> None:
    cell = kernel.start("%%on_mesh\nprint('in')\nif rank != 1:\n    dist.barrier()")
    cell.until_all(4, "in")
    stacks = ""
    while "barrier" not in stacks:
        stacks = kernel.start_aside("%mesh stacks").end().text
    are_waiting = "print(all('waiting in' in where for where in m.where([0, 2, 3]).values()))"
    while kernel.start_aside(are_waiting).end().text != "True\n":
        pass
    assert "3 busy" in kernel.start_aside("%mesh").end().text
    freed = kernel.start_aside("%mesh unstick").end().text
    assert freed.startswith("ranks 0,2-3 are free; they were at ")
    assert "waiting in barrier\nprocess groups renewed: " in freed
    ended = cell.end()
    assert ended.error == "MeshError: 3 of 4 ranks interrupted (dp=0,tp=0 · dp=1,tp=0-1)"
    assert "×3  freed by `%mesh unstick`, at cell" in ended.traceback
    assert "run it again on all: %%on_mesh" in ended.traceback  # on them alone it would hang again
    assert kernel.ok("%on_mesh -- (dist.all_reduce(ones := torch.ones(1)), ones.item())[1]").text.startswith("4.0")


def test_hard_interrupt_and_kill(kernel: Kernel) -> None:
    kernel.ok("%mesh up aside dp=2 --device cpu")
    kernel.ok("%%on_mesh\nimport torch.distributed as dist")
    cell = kernel.start("%%on_mesh\nprint('in')\nif rank:\n    dist.monitored_barrier()")
    cell.until_all(2, "in")
    assert "rank 1 is free" in kernel.start_aside("%mesh interrupt --hard").end().text
    assert cell.end().status == "error"
    cell = kernel.start("%%on_mesh\nprint('in')\nwhile True: pass")
    cell.until_all(2, "in")
    assert kernel.start_aside("%mesh interrupt 0 --kill").end().text.startswith("killed: rank 0; ")
    cell.until("killed by SIGKILL")
    kernel.start_aside("%mesh interrupt").end()
    assert cell.end().error == "DeviceMeshError: 1 of 2 ranks lost (dp=0)"
    kernel.ok("%mesh down aside")
