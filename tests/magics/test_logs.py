"""`%mesh logs`: what ranks have printed, whoever printed it and whatever became of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.magics.front_end import Kernel

pytestmark = [pytest.mark.slow, pytest.mark.real]


UNTIL_GO = "while not os.path.exists({!r}):\n    time.sleep(0.01)\n"


@pytest.fixture
def kernel(shared_kernel: Kernel) -> Iterator[Kernel]:
    """The kernel with a mesh whose logs nobody else has written to."""
    shared_kernel.ok("%mesh up logged dp=2 tp=2 --device cpu --pg none")
    shared_kernel.ok("%%on_mesh\nimport os, time")
    yield shared_kernel
    for name in ("go-logs", "go-on", "go-aside"):
        (shared_kernel.folder / name).touch()  # a cell that waits must not hold up the next test
    shared_kernel.ok("%mesh down logged --grace 0.2")
    for name in ("go-logs", "go-on", "go-aside"):
        (shared_kernel.folder / name).unlink()


def number_of(outputs: Any) -> int:
    return outputs.reply["execution_count"]


def test_the_text_of_a_cell_folded_as_the_cell_shows_it(kernel: Kernel) -> None:
    ran = kernel.ok("%%on_mesh\nimport sys\nprint('all')\nif rank == 2: print('odd', file=sys.stderr)\nprint('end')")
    told = kernel.ok(f"%mesh logs --cell {number_of(ran)}")
    assert told.text == ran.text == "0-3 │ all\n  2 │ odd\n0-3 │ end\n"
    assert told.stderr == "  2 │ odd\n"
    assert kernel.ok(f"%mesh logs --cell {number_of(ran)} --err").text == "  2 │ odd\n"
    assert kernel.ok(f"%mesh logs dp=0 --cell {number_of(ran)}").text == "0-1 │ all\n0-1 │ end\n"
    assert kernel.ok(f"%mesh logs 2 -n 2 --cell {number_of(ran)}").text == "  2 │ odd\n  2 │ end\n"
    assert kernel.ok(f"%mesh logs --grep 'o|n' --cell {number_of(ran)}").text == "  2 │ odd\n0-3 │ end\n"


def test_cells_are_kept_apart_and_may_be_named_by_their_label(kernel: Kernel) -> None:
    first = kernel.ok("%%on_mesh\nprint('same')")
    kernel.ok("%%on_mesh --label again\nprint('same')")
    assert kernel.ok("%mesh logs -n 1 --cell again").text == "0-3 │ same\n"
    told = kernel.ok("%mesh logs -n 2").text
    assert told == f"── cell {number_of(first)}\n0-3 │ same\n── again\n0-3 │ same\n"


def test_all_of_a_long_output(kernel: Kernel) -> None:
    ran = kernel.ok("%%on_mesh 0\nfor i in range(12_000): print(i)")
    assert "more lines (" in ran.text and "`%mesh logs` has all" in ran.text
    told = kernel.ok(f"%mesh logs 0 --cell {number_of(ran)}").text.splitlines()
    assert (len(told), told[0], told[-1]) == (200, "  0 │ 11800", "  0 │ 11999")
    told = kernel.ok(f"%mesh logs 0 -n all --cell {number_of(ran)}").text.splitlines()
    assert told == [f"  0 │ {i}" for i in range(12_000)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--grep (", "UsageError: %mesh logs: --grep: '(' is no regular expression: "),
        ("--cell 9999", "UsageError: --cell: no cell 9999 has run on mesh 'logged': there is "),
        ("-n 0", "UsageError: %mesh logs: -n: '0' is not a whole number of 1 or more"),
        ("dp=7", "UsageError: dp=7 is out of range"),
    ],
)
def test_mistakes_are_told_in_one_line(kernel: Kernel, line: str, expected: str) -> None:
    outputs = kernel.cell(f"%mesh logs {line}")
    assert outputs.error.startswith(expected)
    assert outputs.text.strip() == outputs.error


def test_following_a_cell_in_the_background_ends_with_it(kernel: Kernel) -> None:
    started = kernel.ok(f"%%on_mesh dp=0 -b\nprint('in')\n{UNTIL_GO.format('go-logs')}print('out')")
    cell = kernel.start(f"%mesh logs -f --cell {number_of(started)}")
    cell.until_all(2, "in")
    (kernel.folder / "go-logs").touch()
    assert cell.end().text == "0-1 │ in\n0-1 │ out\n"


def test_the_stop_button_ends_following_and_leaves_the_ranks_alone(kernel: Kernel) -> None:
    started = kernel.ok(f"%%on_mesh -b -o f\nprint('in')\n{UNTIL_GO.format('go-on')}rank")
    cell = kernel.start(f"%mesh logs -f --cell {number_of(started)}")
    cell.until_all(4, "in")
    kernel.interrupt()
    ended = cell.end()
    assert (ended.status, ended.text) == ("ok", "0-3 │ in\n")
    assert kernel.value("f.done()") is False
    (kernel.folder / "go-on").touch()
    assert kernel.value("f.result().values()") == [0, 1, 2, 3]


def test_from_a_subshell_while_a_cell_runs(kernel: Kernel) -> None:
    idle = kernel.start_aside("%mesh logs -f").end()
    assert idle.error.startswith("UsageError: -f in a subshell follows cells while they run, and none runs now")
    cell = kernel.start(f"%%on_mesh\nprint('in')\n{UNTIL_GO.format('go-aside')}print('out')")
    cell.until_all(4, "in")
    assert kernel.start_aside("%mesh logs -n 1").end().text == "0-3 │ in\n"
    following = kernel.start_aside("%mesh logs -f -n 1")
    following.until_all(4, "in")
    (kernel.folder / "go-aside").touch()
    assert following.end().text == "0-3 │ in\n0-3 │ out\n"
    assert cell.end().status == "ok"


def test_the_log_of_a_dead_rank_stays(kernel: Kernel) -> None:
    kernel.ok("%mesh up mortal dp=2 --device cpu --pg none")
    kernel.cell("%%on_mesh\nimport os\nprint('last words', flush=True)\nif rank: os.kill(os.getpid(), 9)")
    assert kernel.ok("%mesh logs -n 1").text == "0-1 │ last words\n"
    assert kernel.ok("%mesh logs @dead").text == "  1 │ last words\n"
    assert kernel.ok("%mesh logs @dead -f").text == "  1 │ last words\n"
    kernel.ok("%mesh down mortal")


def test_the_last_lines_are_those_of_the_last_cell_also_after_a_bar(kernel: Kernel) -> None:
    bar = "for i in range(3): print(f'\\r{i} of 3', end='', file=sys.stderr)\nprint(file=sys.stderr)"
    kernel.ok(f"%%on_mesh 0\nimport sys\n{bar}")
    kernel.ok("%%on_mesh 0\nfor i in range(9): print('line', i)")
    assert kernel.ok("%mesh logs 0 -n 2").text == "  0 │ line 7\n  0 │ line 8\n"


def test_of_the_stack_of_a_rank_that_left_no_frame_of_ours_is_shown(kernel: Kernel) -> None:
    kernel.ok("%mesh up leaver -n 1 --pg none")
    kernel.cell("%%on_mesh\nimport os, sys\nprint('goodbye', file=sys.stderr)\nos._exit(3)")
    told = kernel.ok("%mesh logs 0").text
    assert "goodbye" in told and "Left by os._exit(3)" in told and "line 4 in <module>" in told
    assert "kernel/ranks/cell.py" not in told and "ranks/leaving.py" not in told
    kernel.ok("%mesh down leaver")
