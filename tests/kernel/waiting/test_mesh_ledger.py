"""The ledgers of real gloo ranks, also of ranks that are stuck."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from meshbook.kernel.mesh import Mesh
from meshbook.kernel.waiting.collectives import MeshLedger

pytestmark = [pytest.mark.slow, pytest.mark.real]

WAIT = 30.0


@pytest.fixture
def mesh(engine: str) -> Iterator[Mesh]:
    """Three ranks, so that one may be odd; nothing was issued on them yet."""
    with Mesh.up("m", {"rank": 3}, engine=engine, path=sys.path) as mesh:
        run(mesh, "import torch, torch.distributed as dist")
        yield mesh


def run(mesh: Mesh, source: str, ranks: list[int] | None = None) -> None:
    done = mesh.run(source, ranks)
    done.finished.get(WAIT)
    assert not done.progress.failed, done.progress.outcomes


def settled(mesh: Mesh, last: int) -> MeshLedger:
    """What the ledgers say when all is done: gloo's threads note the end a moment after they have told the cell."""
    deadline = time.monotonic() + WAIT
    ledger = mesh.ledger(timeout=WAIT, last=last)
    while any(line.is_open for line in ledger.lines()):
        assert time.monotonic() < deadline, ledger
        ledger = mesh.ledger(timeout=WAIT, last=last)
    return ledger


def stuck(mesh: Mesh, source: str, is_there: Callable[[MeshLedger], object]) -> MeshLedger:
    """What the ledgers say while the ranks are stuck in this cell; they are interrupted then."""
    cell = mesh.run(source, name="cell 5")
    deadline = time.monotonic() + WAIT
    try:
        while not is_there(ledger := mesh.ledger(timeout=WAIT)):
            assert time.monotonic() < deadline, ledger
    finally:
        mesh.interrupt()
        cell.finished.get(WAIT)
    return ledger


def test_a_rank_that_called_something_else_is_told_with_its_line(mesh: Mesh) -> None:
    first = "dist.barrier()\nif rank == 2:\n    dist.all_gather_object([None] * 3, 1)\n"
    body = first + "else:\n    dist.all_reduce(torch.ones(4))"

    def is_there(ledger: MeshLedger) -> bool:
        # gloo's threads note the end of the barrier a moment after they have told the cell
        is_told = bool(ledger.findings) and len(ledger.findings[0].waiting) == 3
        return is_told and len(lines := ledger.lines()) == 3 and not lines[0].is_open

    ledger = stuck(mesh, body, is_there)
    assert [finding.text for finding in ledger.findings] == [
        "rank 2 called all_gather_object at cell 5, line 3; ranks 0-1 called all_reduce at cell 5, line 5 "
        "(#2 of the default group)"
    ]
    assert [line.ranks for line in ledger.lines()] == [(0, 1, 2), (0, 1), (2,)]


def test_a_slow_rank_is_told(mesh: Mesh) -> None:
    """By half of what it is slow, as other programs use these cores too."""
    run(mesh, "import time\nfor _ in range(6):\n    time.sleep(0.05 * (rank == 1))\n    dist.all_reduce(torch.ones(4))")
    ledger = settled(mesh, last=1)
    (late,) = ledger.late
    assert late.ranks == (1,) and late.delay > 0.025 and late.waited > 0.15, late
    assert f"◷ {late.text}" in repr(ledger).splitlines() and late.text in ledger._repr_html_()
    assert ledger.data()["late"] == [late.text] and not mesh.ledger([0, 2], timeout=WAIT).late


def test_a_rank_that_has_not_issued_it_is_told(mesh: Mesh) -> None:
    body = "x = torch.ones(1024)\ndef step():\n    dist.all_reduce(x)\nstep()\nif rank != 1:\n    step()"
    ledger = stuck(mesh, body, lambda ledger: ledger.findings and len(ledger.findings[0].waiting) == 2)
    assert [finding.text for finding in ledger.findings] == [
        "ranks 0,2 wait in all_reduce #2 (1024,) at cell 5, line 3; rank 1 has issued only 1"
    ]
    assert (ledger.findings[0].odd, ledger.findings[0].waiting) == ((1,), (0, 2))


def test_who_is_missing_in_a_barrier_that_torch_does_not_record_is_named(mesh: Mesh) -> None:
    run = mesh.run("if rank != 1: dist.monitored_barrier()", name="cell 5")
    deadline = time.monotonic() + 20
    while not (findings := mesh.ledger().findings) or findings[0].waiting != (0, 2):
        assert time.monotonic() < deadline, findings
    assert findings[0].text == "ranks 0,2 wait in monitored_barrier for rank 1 at cell 5, line 1; rank 1 is idle"
    assert mesh.unstick().freed == (0, 2)
    run.finished.get(10)


def test_a_rank_with_another_size_is_told(mesh: Mesh) -> None:
    body = "if rank != 2: dist.all_reduce(torch.ones(4 + rank))"
    ledger = stuck(mesh, body, lambda ledger: ledger.findings and len(ledger.findings[0].waiting) == 2)
    assert ledger.findings[0].text == (
        "rank 1 called all_reduce (5,) at cell 5, line 1; rank 0 called all_reduce (4,) at cell 5, line 1 "
        "(#1 of the default group)"
    )


def test_ranks_in_step_give_no_finding_and_the_oldest_are_forgotten(mesh: Mesh) -> None:
    run(mesh, "for _ in range(300): dist.all_reduce(torch.ones(4))")
    ledger = settled(mesh, last=1000)
    assert ledger.findings == ()
    assert [line.number for line in ledger.lines()] == list(range(45, 301))
    assert {line.ranks for line in ledger.lines()} == {(0, 1, 2)}


def test_other_groups_are_told_by_their_members(mesh: Mesh) -> None:
    run(mesh, "pair = dist.new_group([0, 2], use_local_synchronization=True) if rank != 1 else None")
    ledger = stuck(mesh, "if rank == 2: dist.barrier(pair)", lambda ledger: ledger.findings)
    assert (
        ledger.findings[0].text
        == "rank 2 waits in barrier #1 of the group of ranks 0,2 at cell 5, line 1; rank 0 has issued none"
    )


def test_the_record_of_destroyed_groups_is_not_taken_for_that_of_new_ones(mesh: Mesh) -> None:
    run(mesh, "dist.barrier()")
    stuck(mesh, "if rank: dist.barrier()", lambda ledger: ledger.findings)
    assert mesh.ledger(timeout=WAIT).findings
    run(mesh, "dist.destroy_process_group()\ndist.init_process_group('gloo')")
    assert mesh.ledger(timeout=WAIT).findings == ()
    run(mesh, "dist.all_reduce(torch.ones(1))")
    assert [(line.number, line.ranks) for line in settled(mesh, last=8).lines()] == [(1, (0, 1, 2))]


def test_asking_imports_no_compiler(mesh: Mesh) -> None:
    run(mesh, "import sys\ndist.barrier()\nvars(torch).pop('_inductor', 0), sys.modules.pop('torch._inductor', 0)")
    mesh.ledger(timeout=WAIT)
    run(mesh, "assert 'torch._inductor' not in sys.modules")
    run(mesh, "assert torch._inductor is sys.modules['torch._inductor']", [0])


def test_a_torch_that_keeps_no_record_leaves_a_count(mesh: Mesh) -> None:
    run(mesh, "dist.barrier()\nfrom meshbook.runtime.groups import ledger\nkept, ledger._DUMPS = ledger._DUMPS, ()")
    told = repr(mesh.ledger([0], timeout=WAIT))
    run(mesh, "ledger._DUMPS = kept")
    assert "rank 0: its torch keeps no record; operations issued, sends included: 1 in the default group" in told


RECEIVING = {
    "recv": "dist.recv(torch.ones(1), 2)",
    "irecv": "dist.irecv(torch.ones(1), 2).wait()",
    "batch": "for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, torch.ones(1), 2)]): work.wait()",
    "group": "dist.recv(torch.ones(1), group=pair, group_src=1)",
}


@pytest.mark.parametrize("source", RECEIVING.values(), ids=RECEIVING)
def test_who_waits_for_a_rank_that_sends_nothing_is_told(mesh: Mesh, source: str) -> None:
    run(mesh, "pair = dist.new_group([1, 2])")
    cell = mesh.run(f"if rank == 1:\n    {source}", name="cell 5")
    deadline = time.monotonic() + WAIT
    while not (ledger := mesh.ledger(timeout=WAIT)).findings:
        assert time.monotonic() < deadline, ledger
    mesh.release([1])
    cell.finished.get(WAIT)
    assert ledger.findings[0].text == "rank 1 waits in recv from rank 2 at cell 5, line 2; rank 2 is idle"
    assert (ledger.findings[0].waiting, ledger.findings[0].odd) == ((1,), (2,))


def test_a_rank_that_was_busy_as_groups_were_renewed_has_issued_nothing_in_them(mesh: Mesh, tmp_path: Path) -> None:
    run(mesh, "dist.all_reduce(torch.ones(4))")
    gate = tmp_path / "gate"
    busy = mesh.run(f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)", [1])
    assert mesh.unstick([0]).is_renewed
    waiting = mesh.run("dist.all_reduce(torch.ones(4))", [0, 2], name="cell 5")
    deadline = time.monotonic() + WAIT
    while not (ledger := mesh.ledger(timeout=WAIT)).findings or ledger.findings[0].waiting != (0, 2):
        assert time.monotonic() < deadline, ledger
    gate.touch()
    busy.finished.get(WAIT)
    run(mesh, "dist.all_reduce(torch.ones(4))", [1])  # in the new groups: rank 1 got them as it was done
    waiting.finished.get(WAIT)
    assert ledger.findings[0].text == ("ranks 0,2 wait in all_reduce #1 (4,) at cell 5, line 1; rank 1 has issued none")
