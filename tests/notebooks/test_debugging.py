"""The lesson about the debugger, executed by one who types: the answers stand in the metadata of its cells."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.magics.front_end import Kernel
from tests.magics.outputs import Outputs

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.notebook, pytest.mark.timeout(180)]

LESSON = Path(__file__).parents[2] / "notebooks" / "debugging.ipynb"


@pytest.fixture(scope="module")
def executed() -> Iterator[dict[str, Outputs]]:
    kernel = Kernel()
    outputs: dict[str, Outputs] = {}
    try:
        for cell in nbformat.read(LESSON, as_version=4).cells:
            if cell.cell_type == "code":
                running = kernel.start(cell.source)
                running.talk(*cell.metadata.get("answers", []))
                outputs[cell.id] = running.end(60)
        yield outputs
    finally:
        kernel.close()


def test_it_stands_in_the_repository_without_outputs() -> None:
    notebook = nbformat.read(LESSON, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.outputs for cell in notebook.cells if cell.cell_type == "code")


def test_only_what_is_to_fail_fails(executed: dict[str, Outputs]) -> None:
    cells: list[Any] = [cell for cell in nbformat.read(LESSON, as_version=4).cells if cell.cell_type == "code"]
    meant = [cell.id for cell in cells if cell.metadata.get("tags") == ["raises-exception"]]
    assert [name for name, outputs in executed.items() if outputs.status != "ok"] == meant


def test_the_odd_rank_is_named(executed: dict[str, Outputs]) -> None:
    assert "nan" in executed["train"].text
    assert "rank 2" in executed["diff"].text and "5" in executed["diff"].text


def test_the_breakpoint_stops_that_rank_where_its_number_goes_wrong(executed: dict[str, Outputs]) -> None:
    said = executed["stop"].stdout
    assert "rank 2 (dp=2) is stopped at cell 2 line" in said
    assert "loss_of if (batch @ weight).min() < 0" in said
    assert "tensor(-" in said and "\n5\n" in said and "tensor(-6.)" in said


def test_the_frames_of_the_error_are_still_there(executed: dict[str, Outputs]) -> None:
    said = executed["look"].stdout
    assert "rank 2 (dp=2) after its error" in said and "\n11\n" in said and "\n5\n" in said


def test_the_hang_is_told_and_leaves_no_harm(executed: dict[str, Outputs]) -> None:
    assert "TimeoutError" in executed["hang"].text and "all_reduce" in executed["hang"].text
    assert "rank 3 has issued only 1" in executed["hang"].text
    assert "4.0   ranks 0-3" in executed["works"].text
