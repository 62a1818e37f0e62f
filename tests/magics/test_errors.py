"""A cell that fails: its status, its story, and a mesh that goes on."""

from __future__ import annotations

from typing import Any

import psutil
import pytest

from tests.magics.front_end import Kernel
from tests.magics.hurry import hurried

pytestmark = [pytest.mark.slow, pytest.mark.real]


@pytest.fixture
def spare(kernel: Kernel) -> Any:
    """The kernel with another mesh of three ranks, `spare`, whose ranks may be killed and left out of step."""
    kernel.ok("%mesh up spare dp=3 --device cpu")
    kernel.ok("%%on_mesh\nimport os, time, torch, torch.distributed as dist")
    yield kernel
    kernel.ok("%mesh down spare --grace 0.2")


def test_a_failing_rank_fails_the_cell_and_the_others_results_are_kept(kernel: Kernel) -> None:
    failed = kernel.cell(
        "%%on_mesh -o r\ndef check(n):\n    if n == 1:\n        raise ValueError(f'rank {n} is odd')\n"
        "    return n\n\ncheck(rank)"
    )
    assert (failed.status, failed.error) == ("error", "MeshError: 1 of 4 ranks failed (dp=0,tp=1)")
    assert "dp=0,tp=1  ValueError: rank 1 is odd\n" in failed.traceback
    for line in ("line 7", "→ 7  check(rank)", "line 4, in check", "→ 4  raise ValueError(f'rank {n} is odd')"):
        assert line in failed.traceback
    assert "magics" not in failed.traceback
    assert kernel.value("(r.ok, r.failed, [r[i] for i in (0, 2, 3)])") == (False, (1,), [0, 2, 3])
    kernel.ok("try:\n    r[1]\nexcept ValueError as error:\n    said = str(error)")
    assert "ValueError: rank 1 is odd" in kernel.value("said")
    assert "✗ rank" in kernel.ok("%mesh status @failed").text
    assert kernel.ok("%%on_mesh @failed\nrank").text.startswith("1   rank 1")


def test_equal_errors_are_told_once(kernel: Kernel) -> None:
    failed = kernel.cell("%%on_mesh\nassert False, 'same'")
    assert failed.error == "MeshError: 4 of 4 ranks failed (dp=0-1,tp=0-1)"
    assert failed.traceback.count("AssertionError: same") == 1
    assert "dp=0-1,tp=0-1 ×4" in failed.traceback


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x = = 1", "SyntaxError: invalid syntax"),
        ("if True:\nx", "IndentationError"),
        ("'\\ud800'.encode()", "UnicodeEncodeError"),
        ("raise ExceptionGroup('both', [ValueError('a'), KeyError('b')])", "ExceptionGroup: both (2 sub-exceptions)"),
        ("raise OSError(2, 'no such thing', 'x.py')", "OSError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        (
            "raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})()",
            "<its __str__ raised ZeroDivisionError>",
        ),
        ("def f(n):\n    f(n + 1)\nf(0)", "RecursionError"),
        ("import sys\nsys.exit(3)", "SystemExit: sys.exit(3) ended the cell; the rank lives on"),
        ("%nonsense", "`%nonsense` not found"),
        (
            "import threading\nclass Stuck(Exception):\n    def __init__(self, a, b):\n        super().__init__(a)\n"
            "        self.lock = threading.Lock()\nraise Stuck('held', 2)",
            "Stuck: held",
        ),
    ],
    ids=lambda text: text.partition("\n")[0][:24],
)
def test_every_kind_of_error_travels(kernel: Kernel, body: str, expected: str) -> None:
    failed = kernel.cell(f"%%on_mesh dp=0\n{body}")
    assert failed.error == "MeshError: 2 of 2 ranks failed (dp=0,tp=0-1)"
    assert expected in failed.traceback
    assert "raised in" not in failed.traceback or "meshbook" not in failed.traceback
    assert kernel.ok("%on_mesh dp=0 -- world_size").text.startswith("4   ranks 0-1")


@pytest.mark.parametrize("wait", ["dist.barrier()", "dist.all_reduce(torch.ones(1))"])
def test_ranks_that_wait_for_one_that_raised_are_released(spare: Kernel, wait: str) -> None:
    failed = spare.cell(f"%%on_mesh -o r --grace 3600\nif rank == 1:\n    raise ValueError('boom')\n{wait}")
    assert failed.error == "MeshError: 1 of 3 ranks failed (dp=1)"
    assert "dp=1  ValueError: boom" in failed.traceback
    assert f"line 4, waiting in {wait[5:12].rstrip('(')}" in failed.traceback
    assert "◌ dp=(0,2) ×2  was at cell" in failed.traceback
    assert "; interrupted, state kept" in failed.traceback
    assert "↻ process groups renewed, as they were out of step" in failed.traceback
    assert f"  1 ✗ ValueError: boom (cell {failed.reply['execution_count']} line 3); 0,2 still work" in failed.stderr
    assert spare.ok("%%on_mesh @failed\nrank").text.startswith("1   rank 1")
    assert spare.ok("%on_mesh -- rank * 10").text.splitlines()[2].startswith("20")
    assert spare.ok("%on_mesh -- (dist.all_reduce(ones := torch.ones(1)), ones.item())[1]").text.startswith("3.0")


def test_a_rank_that_interrupts_itself_has_failed(spare: Kernel) -> None:
    """Its own code may raise it, or somebody signals it from outside: it is why the others were interrupted."""
    failed = spare.cell("%%on_mesh --grace 3600\nif rank == 1:\n    raise KeyboardInterrupt('mine')\ndist.barrier()")
    assert failed.error == "MeshError: 1 of 3 ranks failed (dp=1)"
    cell = f"cell {failed.reply['execution_count']}"
    assert f"dp=1  KeyboardInterrupt: mine\n     {cell}, line 3\n" in failed.traceback
    assert f"◌ dp=(0,2) ×2  was at {cell} line 4, waiting in barrier; interrupted, state kept" in failed.traceback
    assert spare.ok("%%on_mesh @failed\nrank").text.startswith("1   rank 1")


def test_others_may_be_waited_for(kernel: Kernel) -> None:
    failed = kernel.cell("%%on_mesh --on-error wait --grace 0 -o r\nif rank == 0:\n    1/0\ntime.sleep(0.4)\nrank")
    assert "✗ ZeroDivisionError: division by zero (cell " in failed.stderr
    assert kernel.value("[r[i] for i in (1, 2, 3)]") == [1, 2, 3]


def test_a_timeout_names_the_ranks_that_are_not_done_and_their_lines(kernel: Kernel) -> None:
    body = "print('in')\nif rank == 2:\n    time.sleep(60)\nelif rank == 3:\n    while True:\n        pass\nrank"
    failed = kernel.cell(f"%%on_mesh -t 0.3 -o r\n{body}")
    assert failed.seconds < 8  # about 1 on an idle machine; without the release it would be for ever
    assert failed.error == "MeshError: 2 of 4 ranks failed (dp=1,tp=0-1)"
    cell = f"cell {failed.reply['execution_count']}"
    assert (
        f"dp=1,tp=0  TimeoutError: not done after 0.3 s, at {cell} line 4; interrupted, state kept" in failed.traceback
    )
    assert f"dp=1,tp=1  TimeoutError: not done after 0.3 s, at {cell} line " in failed.traceback
    assert "interrupts.py" not in failed.traceback
    assert kernel.value("(r[0], r[1])") == (0, 1)


def test_a_timeout_names_the_line_of_an_awaiting_cell(kernel: Kernel) -> None:
    failed = kernel.cell(
        "%%on_mesh -t 0.2\nimport asyncio\nasync def slow():\n    await asyncio.sleep(60)\nawait slow()"
    )
    cell = f"cell {failed.reply['execution_count']}"
    assert f"not done after 0.2 s, at {cell} line 5 > {cell} line 4; interrupted, state kept" in failed.traceback


def test_a_rank_that_is_killed_is_named_with_its_end(spare: Kernel) -> None:
    pids = spare.pids()
    cell = spare.start("%%on_mesh -o r\nprint('in')\nif rank == 2:\n    time.sleep(60)\nrank")
    cell.until_all(3, "in")
    psutil.Process(pids[2]).kill()
    failed = cell.end()
    assert failed.error == "DeviceMeshError: 1 of 3 ranks lost (dp=2)"
    assert f"rank 2 (dp=2, pid {pids[2]}) killed by SIGKILL" in failed.traceback
    assert spare.value("(r[0], r[1])") == (0, 1)
    status = spare.ok("%mesh").text
    assert "2 idle, 1 dead" in status
    assert "✝ rank 2 (dp=2)  dead" in status
    assert "ranks 0-1" in spare.ok("%on_mesh -- 'the others'").text
    named = spare.cell("%%on_mesh rank=2\n1")
    assert named.error == "DeviceMeshError: 1 of 1 rank lost (dp=2)"
    assert "killed by SIGKILL" in named.traceback


def test_a_rank_that_leaves_says_how(spare: Kernel) -> None:
    failed = spare.cell("%%on_mesh 1\nos.write(2, b'last words\\n')\nos._exit(3)")
    assert "exited with code 3" in failed.traceback
    assert "last words" in failed.text
    spare.ok("%mesh restart")
    assert "ranks 0-2" in spare.ok("%on_mesh -- 'again'").text


def test_a_collective_with_a_dead_rank_is_given_up_and_says_why(spare: Kernel) -> None:
    psutil.Process(spare.pids()[1]).kill()
    spare.cell("%%on_mesh rank=1\n1")  # returns when its end is known
    spare.ok("%mesh unstick")  # new groups, which wait for the dead: of the old ones gloo may know that it is gone
    failed = spare.cell("%%on_mesh --no-check --grace 3600\nimport torch\ndist.all_reduce(torch.ones(1))")
    assert "rank 1 is dead and will not come" in failed.stderr
    assert "waiting in all_reduce; interrupted, state kept" in failed.traceback
    assert spare.ok("%mesh restart @dead").stdout.startswith("rank 1 is back in ")
    assert spare.ok("%on_mesh -- (dist.all_reduce(ones := torch.ones(1)), ones.item())[1]").text.startswith("3.0")


def test_cells_without_the_dead_name_them_where_they_fail_in_collectives_or_are_stopped(spare: Kernel) -> None:
    spare.ok("%on_mesh -- dist.barrier()")
    psutil.Process(spare.pids()[1]).kill()
    spare.cell("%%on_mesh rank=1\n1")  # returns when its end is known, and was told
    well = spare.ok("%on_mesh -- 'well'")
    assert "ranks 0,2" in well.text and not well.stderr
    failed = spare.cell("%%on_mesh\ndist.barrier()")
    why = "line 2: dist.barrier() without group= runs on all 3 ranks, and rank 1 is dead: %mesh restart @dead"
    assert failed.stderr.startswith(f"warning: {why}\n")
    assert failed.error == "DeviceMeshError: 1 of 3 ranks lost (dp=1)"
    assert "lost its connection to a rank that is gone, at cell" in failed.traceback
    assert "\nbring back: %mesh restart @dead   what it said: %mesh logs 1\n" in failed.traceback
    cell = spare.start("%%on_mesh\nprint('in')\nimport time; time.sleep(60)")
    cell.until("in")
    spare.interrupt()
    assert cell.end().error.endswith("they are idle and keep their state; rank 1 is dead: `%mesh restart @dead`")


def test_a_cell_that_hangs_says_so_while_it_does(spare: Kernel) -> None:
    with hurried(spare, "meshbook.kernel.waiting.hangs", FIRST=0.5, PATIENCE=0.3):
        cell = spare.start("%%on_mesh\nif rank != 1:\n    dist.barrier()")
        cell.until("rank 1 has issued")
        spare.interrupt()
        stopped = cell.end()
    assert "0,2 ≠ ranks 0,2 wait in barrier" in stopped.stderr
    assert "`%mesh unstick` frees them" in stopped.stderr


def test_killing_waits_until_they_are_gone(spare: Kernel) -> None:
    assert "killed: ranks 0,2" in spare.ok("%mesh interrupt rank=(0,2) --kill").stdout
    assert "2 dead, 1 idle" in spare.ok("%mesh").text
    assert spare.ok("%mesh restart @dead").stdout.startswith("ranks 0,2 are back in ")
