"""The line under `%mesh up`: it tells what has become of the ranks, and costs nothing while nothing happens."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.magics.front_end import Kernel

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.notebook]


def lines_of(kernel: Kernel, display_id: str) -> list[str]:
    """What a front-end was told to show in place of one display."""
    updates = [each["content"] for each in kernel.messages if each["msg_type"] == "update_display_data"]
    return [each["data"]["text/plain"] for each in updates if each["transient"]["display_id"] == display_id]


def strip_of(cell: Any) -> str:
    [shown] = [each["content"] for each in cell.messages if each["msg_type"] == "display_data"]
    assert shown["data"]["text/plain"].startswith("mesh live   dp=2")
    return shown["transient"]["display_id"]


def test_a_death_is_seen_in_an_idle_notebook_and_so_is_the_end(kernel: Kernel) -> None:
    cell = kernel.start_in_cell("%mesh up live dp=2 --device cpu --pg none")
    cell.end()
    display_id = strip_of(cell)
    kernel.ok("%%on_mesh -m live\nNone")
    assert lines_of(kernel, display_id) == []  # a short cell is no news
    os.kill(kernel.pids("live")[1], signal.SIGKILL)
    kernel.listen_until(lambda: bool(lines_of(kernel, display_id)), 5, "the death")
    assert lines_of(kernel, display_id)[-1].endswith(" · rank 1 dead, 1 idle")
    [update] = [each for each in kernel.messages if each["msg_type"] == "update_display_data"][-1:]
    assert 'aria-label="2 ranks: 1 idle, 1 dead"' in update["content"]["data"]["text/html"]
    told = kernel.cell("%%on_mesh -m live\nrank")
    assert told.text.startswith("note: rank 1 (dp=1, pid "), told.text
    kernel.ok("%mesh restart 1")
    kernel.listen_until(lambda: "ready in" in lines_of(kernel, display_id)[-1], 5, "all well again")
    kernel.ok("%mesh down live")
    kernel.listen_until(lambda: lines_of(kernel, display_id)[-1].endswith(" · down"), 5, "the end")


def test_where_nobody_reads_the_line_is_drawn_once(kernel: Kernel) -> None:
    cell = kernel.start("%mesh up live dp=2 --device cpu --pg none")
    cell.end()
    os.kill(kernel.pids("live")[1], signal.SIGKILL)
    until = "while m2.states()[1] != 'dead': pass"
    kernel.ok(f"m2 = %mesh use live\n{until}")
    timers = "[each.name for each in __import__('threading').enumerate() if 'Timer' in type(each).__name__]"
    assert kernel.value(timers) == []
    assert lines_of(kernel, strip_of(cell)) == []
    kernel.ok("%mesh down live")
