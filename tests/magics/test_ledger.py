"""Why ranks waited: told by the cell that released them, by `%mesh ledger`, and before a cell runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.magics.front_end import Kernel
from tests.magics.hurry import hurried

pytestmark = [pytest.mark.slow, pytest.mark.real]


WARNING = (
    "warning: line 3: dist.barrier() without group= runs on all 3 ranks but this cell is on 2 of them: "
    "pass group=group\n"
)


@pytest.fixture
def spare(kernel: Kernel) -> Any:
    """The kernel with another mesh of three ranks, `spare`, whose ranks may be left out of step."""
    kernel.ok("%mesh up spare dp=3 --device cpu")
    kernel.ok("%%on_mesh\nimport torch, torch.distributed as dist\nx = torch.ones(4)\ndist.all_reduce(x)")
    yield kernel
    kernel.ok("%mesh down spare --grace 0.2")


def cell_of(outputs: Any) -> str:
    return f"cell {outputs.reply['execution_count']}"


def test_the_story_says_which_rank_called_something_else(spare: Kernel) -> None:
    body = "if rank == 2:\n    dist.all_gather_object([None] * 3, 1)\nelse:\n    dist.all_reduce(x)"
    failed = spare.cell(f"%%on_mesh -t 0.4\n{body}")
    assert failed.error == "MeshError: 3 of 3 ranks failed (dp=0-2)"
    cell = cell_of(failed)
    assert (
        f"≠ rank 2 called all_gather_object at {cell}, line 3; ranks 0-1 called all_reduce at {cell}, line 5 "
        "(#2 of the default group)\n"
    ) in failed.traceback


def test_the_story_says_which_rank_issued_nothing(spare: Kernel) -> None:
    failed = spare.cell("%%on_mesh --grace 0.3\nif rank == 1:\n    raise ValueError('boom')\ndist.all_reduce(x)")
    assert failed.error == "MeshError: 1 of 3 ranks failed (dp=1)"
    place = f"at {cell_of(failed)}, line 4; rank 1 has issued only 1\n"
    assert f"≠ ranks 0,2 wait in all_reduce #2 (4,) {place}" in failed.traceback
    assert "↻ process groups renewed, as they were out of step: models go on with them" in failed.traceback
    before = spare.ok("%mesh ledger").text  # in the new groups nothing was issued yet
    assert "≠ ranks 0,2 left all_reduce #2 (4,) open" in before
    assert before.endswith("(of the process groups before the present ones, in which nothing was issued yet)\n")
    assert spare.cell("%%on_mesh -t 0.2\nimport time\nif rank == 0: time.sleep(60)").status == "error"
    assert spare.ok("%mesh ledger").text == before, "another cell that was cut off has issued nothing"
    spare.ok("%%on_mesh\ndist.barrier()")
    assert spare.ok("%mesh ledger").text.startswith("no rank has parted from the others")


def test_the_ledger_of_a_cell_that_hangs(spare: Kernel) -> None:
    started = spare.ok(
        "%%on_mesh -b\ndist.all_reduce(x)\nif rank != 1:\n    dist.all_reduce(x)\nelse:\n    print('out')"
    )
    place = f"at {cell_of(started)}, line 4; rank 1 has issued only 2\n"
    told = f"≠ ranks 0,2 wait in all_reduce #3 (4,) {place}"
    ledger = spare.ok("%mesh ledger")
    while not ledger.text.startswith(told):
        assert "≠" not in ledger.text or "all_reduce #3" in ledger.text
        ledger = spare.ok("%mesh ledger")
    assert "default group  #1  0-2    all_reduce (4,) float32" in ledger.text
    assert "≠ <strong>ranks 0,2 wait" in ledger.shown[0]["text/html"]
    assert spare.ok("%mesh unstick").stdout.startswith("ranks 0,2 are free; they were at ")
    assert spare.ok("%on_mesh -- (dist.all_reduce(ones := torch.ones(1)), ones.item())[1]").text.startswith("3.0")


def test_what_was_issued_before_connections_were_broken_off_is_listed_still(spare: Kernel) -> None:
    stuck = spare.start("%%on_mesh\ndist.all_reduce(x)\nprint('in')\nif rank == 0:\n    dist.recv(x, 1)")
    stuck.until_all(3, "in")
    spare.interrupt()
    assert "broke off collectives" in stuck.end().stderr
    ledger = spare.ok("%mesh ledger").text
    assert ledger.startswith("≠ rank 0 waits in recv from rank 1 at cell ") and "all_reduce (4,) float32" in ledger
    assert "(of the process groups before the present ones, in which nothing was issued yet)" in ledger


def test_the_ledger_as_json_and_of_some_ranks(spare: Kernel) -> None:
    spare.ok("%%on_mesh\nfor _ in range(3): dist.barrier()")
    told = json.loads(spare.value("get_ipython().run_line_magic('mesh', 'ledger 0:2 -n 2 --json')"))
    assert told["findings"] == []
    assert {(each["number"], each["call"]) for each in told["collectives"]} == {(3, "barrier"), (4, "barrier")}
    assert {rank for each in told["collectives"] for rank in each["ranks"]} == {0, 1}


def test_what_an_earlier_cell_left_open_is_no_reason_why_a_later_one_is_late(spare: Kernel) -> None:
    spare.cell("%%on_mesh --grace 0.3\nassert rank != 1\ndist.all_reduce(x)")
    failed = spare.cell("%%on_mesh -t 0.3\nimport time\ntime.sleep(60)")
    assert "TimeoutError" in failed.traceback and "≠" not in failed.traceback


def test_of_a_mesh_that_is_down_there_is_nothing_to_list(kernel: Kernel) -> None:
    kernel.ok("gone = %mesh up gone -n 1 --pg none")
    assert "no collective was issued yet" in kernel.ok("%mesh ledger").text
    kernel.ok("gone.down()")
    assert kernel.cell("%mesh ledger").error.startswith("UsageError: mesh 'gone' was taken down")
    kernel.ok("%mesh down gone")


def test_a_failure_that_has_nothing_to_do_with_collectives_has_no_note(spare: Kernel) -> None:
    failed = spare.cell("%%on_mesh -t 0.3\nimport time\ntime.sleep(60)")
    assert "≠" not in failed.traceback


def test_a_collective_without_group_on_a_slice_is_warned_of_before_it_hangs(spare: Kernel) -> None:
    cell = spare.start("%%on_mesh 0:2\nprint('in')\ndist.barrier()")
    cell.until("in")
    spare.interrupt()
    stopped = cell.end()
    assert stopped.stderr.startswith(WARNING)
    assert next(m["msg_type"] for m in stopped.messages if m["msg_type"] in ("stream", "display_data")) == "stream"


def test_a_rank_outside_the_slice_is_told_as_the_one_that_is_missing(spare: Kernel) -> None:
    failed = spare.cell("%%on_mesh 0:2 -t 0.4\ndist.barrier()")
    place = f"at {cell_of(failed)}, line 2; rank 2 has issued only 1\n"
    assert f"≠ ranks 0-1 wait in barrier #2 {place}" in failed.traceback


@pytest.mark.parametrize(
    "source",
    [
        "%%on_mesh 0:2 --no-check\n0 and dist.barrier()",
        "%%on_mesh 0:2\n0 and dist.barrier(group=group)",
        "%%on_mesh\n0 and dist.barrier()",
        "%on_mesh 0:2 --no-check -- 0 and dist.barrier()",
    ],
)
def test_no_warning(spare: Kernel, source: str) -> None:
    assert spare.ok(source).stderr == ""


@pytest.mark.parametrize("waits", ["dist.all_reduce(x)", "dist.recv(x, 2 if rank == 0 else 1)"])
def test_who_waits_for_a_rank_that_failed_has_no_grace(spare: Kernel, waits: str) -> None:
    failed = spare.cell(f"%%on_mesh --grace 3600\nif rank == 1:\n    raise ValueError('boom')\n{waits}")
    assert failed.error == "MeshError: 1 of 3 ranks failed (dp=1)"
    assert ", waiting in " in failed.text and "; interrupted, state kept" in failed.text
    assert spare.ok("%%on_mesh\ndist.all_reduce(x)").status == "ok"


def test_who_does_something_else_behind_an_open_collective_has_its_grace(spare: Kernel) -> None:
    saves = "work = dist.all_reduce(x, async_op=True)\nif rank == 0:\n    import time; time.sleep(60)\nwork.wait()"
    failed = spare.cell(f"%%on_mesh --grace 1.5\nif rank == 1:\n    raise ValueError('boom')\n{saves}")
    assert "interrupted after 1.5 s, state kept" in failed.text and "; interrupted, state kept" not in failed.text


def test_the_line_form_is_warned_of_too(spare: Kernel) -> None:
    assert "line 2: dist.barrier() without group=" in spare.ok("1\n%on_mesh 0:2 -- 0 and dist.barrier()").stderr


def test_a_cell_says_while_it_runs_which_rank_keeps_the_others_waiting_and_where(spare: Kernel) -> None:
    steps = "while True:\n    if rank == 2:\n        time.sleep(0.02)\n    dist.all_reduce(x)\n    dist.barrier()"
    with (
        hurried(spare, "meshbook.kernel.waiting.hangs", FIRST=2.0),
        hurried(spare, "meshbook.kernel.waiting.sightings", EVERY=0.1),
    ):
        cell = spare.start(f"%%on_mesh\nimport time\n{steps}")
        cell.until(" then")
        spare.interrupt()
        stopped = cell.end()
    here = cell_of(stopped)
    [line] = [line for line in stopped.stderr.splitlines() if "◷" in line]
    assert line.startswith("  2 ◷ rank 2 comes 2")
    assert f" ms late to all_reduce at {here}, line 6: " in line
    assert line.endswith(f"were waiting for it; it is at {here} line 5 then")
    told = spare.ok("%mesh ledger").text
    assert "◷ rank 2 comes 2" in told and f"late to all_reduce at {here}, line 6: " in told
