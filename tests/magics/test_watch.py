"""`%mesh watch` in a real kernel: drawn while cells run, in the cell that asked for it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.magics.front_end import Kernel

pytestmark = [pytest.mark.slow, pytest.mark.real]


def states_of(cell: Any) -> list[str]:
    kinds = ("display_data", "update_display_data")
    return [message["content"]["data"]["text/plain"] for message in cell.messages if message["msg_type"] in kinds]


def test_a_number_is_drawn_while_a_cell_blocks(kernel: Kernel) -> None:
    kernel.ok("%%on_mesh\nwatched = None\n")
    cell = kernel.start("%mesh watch watched --every 0.1")
    assert cell.end().error == ""
    busy = kernel.start(
        "%%on_mesh\nstep = 0\nwhile not os.path.exists('enough'):\n    step += 1\n    watched = step + 1e6 * rank"
    )
    kernel.listen_until(lambda: any("█" in state for state in states_of(cell)), 20, "a sparkline")
    (kernel.folder / "enough").touch()
    busy.end()
    (kernel.folder / "enough").unlink()
    rows = states_of(cell)[-1].splitlines()
    assert rows[0].startswith("watch watched   ")
    assert [row.split("│")[0].strip() for row in rows[1:]] == ["0", "1", "2", "3"]
    assert kernel.ok("%mesh watch --stop").text == ""
    kernel.listen_until(lambda: "ended" in states_of(cell)[-1], 10, "its end")
    assert [m for m in cell.messages if m["msg_type"] == "update_display_data"][-1]["content"]["data"]["text/html"]


def test_an_expression_is_read_while_a_cell_blocks_and_what_would_call_the_user_is_refused(kernel: Kernel) -> None:
    kernel.ok("%%on_mesh\ndef mine(x):\n    raise SystemExit\nw, seen = torch.zeros(3), [0]\n")
    norm = kernel.start("%mesh watch w.norm()/2+len(seen)*0 --every 0.1")
    calls = kernel.start("%mesh watch mine(w) --every 0.1")
    for cell in (norm, calls):
        assert cell.end().error == ""
    busy = kernel.start("%%on_mesh\nw += 8 / 3 ** 0.5\nwhile not os.path.exists('seen'):\n    seen.append(1)")
    kernel.listen_until(lambda: "  4" in states_of(norm)[-1], 20, "half the norm")
    refusal = "mine() is not called while a cell runs: assign the number to a name in the cell"
    kernel.listen_until(lambda: refusal in states_of(calls)[-1], 20, "the refusal")
    (kernel.folder / "seen").touch()
    assert busy.end().error == ""
    (kernel.folder / "seen").unlink()
    kernel.ok("%mesh watch --stop")


def test_ranks_that_come_by_a_resize_are_drawn_too(kernel: Kernel) -> None:
    kernel.ok("grown = %mesh up grown -n 2 --pg none --device cpu")
    cell = kernel.start("%mesh watch y --every 0.1")
    assert cell.end().error == ""
    kernel.ok("%mesh resize rank=3")
    kernel.ok("%%on_mesh\ny = 10 + rank")
    kernel.listen_until(lambda: "  12" in states_of(cell)[-1], 20, "the number of the rank that came")
    kernel.ok("%mesh down grown")


def test_what_a_cell_has_changed_between_two_looks_is_drawn(kernel: Kernel) -> None:
    kernel.ok("%%on_mesh\ny = 100")
    cell = kernel.start("%mesh watch y --every 0.3")
    assert cell.end().error == ""
    for number in (100, 204):
        kernel.ok(f"%%on_mesh\ny = {number}")
        kernel.listen_until(lambda: f"  {number}" in states_of(cell)[-1], 20, "the number")  # noqa: B023
    kernel.ok("%mesh watch --stop")


def test_it_ends_with_the_mesh(kernel: Kernel) -> None:
    kernel.ok("watched = %mesh up watched -n 2 --pg none --device cpu")
    kernel.ok("%%on_mesh\ny = 1.5 + rank")
    listeners = kernel.value("len(watched.roster.on_change)")
    kernel.ok("%mesh watch y\n%mesh watch --stop y")
    assert kernel.value("len(watched.roster.on_change)") == listeners  # else each would stay as long as the mesh
    cell = kernel.start("%mesh watch y 1")
    cell.end()
    kernel.listen_until(lambda: "▅  2.5" in states_of(cell)[-1], 10, "a number")
    kernel.ok("%mesh down watched")
    kernel.listen_until(lambda: "ended" in states_of(cell)[-1], 10, "its end")
    assert "meshbook-watch" not in kernel.value("[t.name for t in __import__('threading').enumerate()]")


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("'[x for x in losses]'", "cannot be read while a cell runs: assign the number to a name in the cell"),
        ("loss[", "'loss[' is no expression, such as loss, losses[-1] or float(w.norm())"),
        ("", "write the number to watch"),
        ("--stop z", "'z' is not watched"),
    ],
)
def test_mistakes_are_told(kernel: Kernel, line: str, part: str) -> None:
    refused = kernel.cell(f"%mesh watch {line}")
    assert refused.error.startswith("UsageError: ")
    assert part in refused.error


def test_items_are_named_as_in_python(kernel: Kernel) -> None:
    kernel.ok("%%on_mesh\nstats = {'a b': [1, 7.25]}")
    cell = kernel.start("%mesh watch stats['a b'][-1] dp=0")
    cell.end()
    kernel.listen_until(lambda: "0-1 │ ▅  7.25" in states_of(cell)[-1], 10, "the number")
    kernel.ok("%mesh watch --stop")
