"""The table of a running cell, as a notebook gets it; where nobody reads a notebook there is none."""

from __future__ import annotations

from typing import Any

import pytest

from tests.magics.front_end import Kernel

pytestmark = [pytest.mark.slow, pytest.mark.real]


WAITING = """%%on_mesh
while rank == 1 and not os.path.exists('go'):
    time.sleep(0.01)
if rank == 1 and os.path.exists('speak'):
    print('spoke')
rank
"""


def places(outputs: Any) -> list[str]:
    """What the notebook has at the end, each display where it first stood and in its last state."""
    texts: dict[str, str] = {}
    for message in outputs.messages:
        content = message["content"]
        if message["msg_type"] == "stream":
            texts[f"stream {len(texts)}"] = content["text"]
        elif message["msg_type"] in ("display_data", "update_display_data"):
            key = content["transient"].get("display_id") or f"display {len(texts)}"
            texts[key] = content["data"]["text/plain"]
    return list(texts.values())


def go(kernel: Kernel, *names: str) -> None:
    for name in names:
        (kernel.folder / name).touch()


def stop(kernel: Kernel, *names: str) -> None:
    for name in names:
        (kernel.folder / name).unlink()


def test_rows_fill_while_the_cell_runs_and_the_result_takes_their_place(kernel: Kernel) -> None:
    cell = kernel.start_in_cell(WAITING)
    cell.until("3 of 4 ranks done")
    go(kernel, "go")
    outputs = cell.end()
    stop(kernel, "go")
    assert outputs.status == "ok"
    (table,) = places(outputs)
    assert table.startswith("0   rank 0 (dp=0,tp=0)") and len(outputs.shown) == 1


def test_what_is_printed_later_stands_above_the_result(kernel: Kernel) -> None:
    cell = kernel.start_in_cell(WAITING)
    cell.until("3 of 4 ranks done")
    go(kernel, "speak", "go")
    outputs = cell.end()
    stop(kernel, "speak", "go")
    emptied, spoken, table = places(outputs)
    assert (emptied, spoken) == ("", "  1 │ spoke\n") and table.startswith("0   rank 0")


def test_a_quick_cell_and_a_front_end_without_cells_get_the_result_alone(kernel: Kernel) -> None:
    quick = kernel.start_in_cell("%%on_mesh\nrank").end()
    assert len(places(quick)) == 1 and not quick.updates
    slow = kernel.cell("%%on_mesh\ntime.sleep(0.8)\nrank")
    assert len(places(slow)) == 1 and not slow.updates


def test_a_stopped_cell_leaves_no_table(kernel: Kernel) -> None:
    cell = kernel.start_in_cell("%%on_mesh\ntime.sleep(60)")
    cell.until("0 of 4 ranks done")
    kernel.interrupt()
    outputs = cell.end()
    assert "KeyboardInterrupt" in outputs.error
    assert not any("ranks done" in place for place in places(outputs))
