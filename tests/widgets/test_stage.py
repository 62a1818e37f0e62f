"""Where late output goes while no cell runs."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from meshbook.widgets.interval import interval
from meshbook.widgets.stage import NotebookStage


class Kernel:
    """What a stage needs of ipykernel: the last request, and a session that sends."""

    iopub_socket = None

    def __init__(self, is_executed: bool) -> None:
        self.session = SimpleNamespace(send=self._on_send)
        self.sent: list[tuple[str, str]] = []
        self._asks = {"allow_stdin": not is_executed}
        self.request("first")

    def request(self, number: str) -> None:
        self._parent = {"header": {"msg_id": number}, "content": self._asks, "metadata": {}}

    def get_parent(self) -> dict[str, Any]:
        return self._parent

    def _topic(self, kind: str) -> bytes:
        return kind.encode()

    def _on_send(self, socket: None, kind: str, content: dict[str, Any], parent: dict[str, Any], **_: object) -> None:
        self.sent.append((parent["header"]["msg_id"], content["text"]))


@pytest.fixture
def between() -> Iterator[None]:
    interval.begin()
    yield
    interval.end()


def test_a_program_that_runs_the_notebook_hears_it_in_the_next_cell(between: None) -> None:
    kernel = Kernel(is_executed=True)
    stage = NotebookStage(SimpleNamespace(kernel=kernel))
    stage.leave()
    stage.write("late")
    assert kernel.sent == [], "nbclient would drop it"
    kernel.request("second")
    interval.end()
    stage.write("later")
    assert kernel.sent == [("second", "late"), ("second", "later")]


def test_who_reads_the_notebook_sees_it_at_once_in_its_own(between: None) -> None:
    kernel = Kernel(is_executed=False)
    stage = NotebookStage(SimpleNamespace(kernel=kernel))
    stage.leave()
    stage.write("late")
    assert kernel.sent == [("first", "late")]
