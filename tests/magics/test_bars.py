"""Progress bars of ranks in a real kernel: as tqdm writes them, with carriage returns and no line end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.magics.front_end import Kernel

pytestmark = [pytest.mark.slow, pytest.mark.real]


TQDM = """import sys, time
def bar(steps, seconds):
    for step in range(steps + 1):
        filled = '█' * (10 * step // steps)
        sys.stderr.write(f'\\r{100 * step // steps:3}%|{filled:10}| {step}/{steps} of rank {rank}')
        sys.stderr.flush()
        time.sleep(seconds)
    sys.stderr.write('\\n')
"""


def states_of(cell: Any) -> list[str]:
    """The states of bars that a front-end was told."""
    kinds = ("display_data", "update_display_data")
    return [message["content"]["data"]["text/plain"] for message in cell.messages if message["msg_type"] in kinds]


def test_a_bar_of_each_rank_is_one_line_that_is_updated(kernel: Kernel) -> None:
    kernel.ok(f"%%on_mesh\n{TQDM}")
    outputs = kernel.ok("%%on_mesh\nbar(300, 0.001)\nprint('done')")
    [block] = [m["content"] for m in outputs.messages if m["msg_type"] == "display_data"]
    assert {update["transient"]["display_id"] for update in outputs.updates} == {block["transient"]["display_id"]}
    lines = outputs.updates[-1]["data"]["text/plain"].splitlines()
    assert lines == [f"  {rank} │ 100%|██████████| 300/300 of rank {rank}" for rank in range(4)]
    assert "done" in outputs.stdout
    assert "█" not in outputs.stdout
    assert outputs.stderr == ""
    assert len(outputs.updates) <= 3 + 5 * outputs.seconds
    log = kernel.value("m.log(0)")
    assert "300/300 of rank 0" in log


def test_a_bar_is_seen_while_its_cell_runs(kernel: Kernel) -> None:
    kernel.ok(f"%%on_mesh\n{TQDM}")
    cell = kernel.start(
        "%%on_mesh 0\nbar(10, 0)\nprint('\\r50%', end='', file=sys.stderr, flush=True)\n"
        "while not os.path.exists('seen'):\n    time.sleep(0.01)"
    )
    kernel.listen_until(lambda: any("50%" in bar for bar in states_of(cell)), 10, "half a bar")
    (kernel.folder / "seen").touch()
    assert cell.end().status == "ok"
    (kernel.folder / "seen").unlink()


def test_equal_bars_are_one_line(kernel: Kernel) -> None:
    outputs = kernel.ok("%%on_mesh\nprint('\\r50%', end='', flush=True)\ntime.sleep(0.5)\nprint('\\r100%')")
    assert outputs.updates[-1]["data"]["text/plain"] == "0-3 │ 100%"


BARS_IN_BARS = """import sys, time
def say(text):
    sys.stderr.write(text)
    sys.stderr.flush()
for i in range(3):
    say(f"\\router {i}/3")
    for j in range(20):
        say("\\n")
        say(f"\\rinner {j}/20")
        say("\\x1b[A")
        time.sleep(0.01)
    say("\\n\\r           \\r\\x1b[A")
say("\\router 3/3\\n")
"""


def test_bars_in_bars_are_lines_of_one_block(kernel: Kernel) -> None:
    outputs = kernel.ok(f"%%on_mesh\n{BARS_IN_BARS}")
    states = states_of(outputs)
    assert any("outer" in state and "inner" in state for state in states), states
    assert all(state.count("inner") <= 4 for state in states)
    last: list[str] = outputs.updates[-1]["data"]["text/plain"].splitlines()
    assert {line.partition("│ ")[2] for line in last} == {"outer 3/3"}  # of all ranks, folded where they are together
    assert (outputs.stdout, outputs.stderr) == ("", "")
    assert kernel.ok("%mesh logs -n 1").text.splitlines() == ["0-3 │ outer 3/3"]
