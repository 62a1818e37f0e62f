"""The cell that runs in the notebook: the number in front of it and its text."""

from __future__ import annotations

from typing import Any

from ..widgets.stage import request_of


def running_cell(shell: Any) -> tuple[int, str]:
    """The number in front of the running cell, and its text.

    (`execution_count` is, in newer IPythons, the number of the next one.) One that is to leave no trace in the history
    is not there: its number is that of the next cell that does.
    """
    cells: list[str] = shell.history_manager.input_hist_raw
    kernel = getattr(shell, "kernel", None)
    request: dict[str, Any] = request_of(kernel).get("content", {}) if kernel is not None else {}
    if "code" in request and not is_kept(request):
        return len(cells), request["code"]
    return max(len(cells) - 1, 1), cells[-1] if cells else ""


def is_kept(request: dict[str, Any]) -> bool:
    """Does a request to run code leave it in the history? What a front-end asks in silence does not."""
    return request.get("store_history", True) and not request.get("silent", False)
