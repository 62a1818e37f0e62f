"""The lesson about faults, executed: a rank dies in the middle of an epoch, and the accuracy is the same."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import ensure_event_loop
from nbclient import NotebookClient

from tests.profiles import COMPILER, preload

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.notebook, pytest.mark.timeout(180)]

LESSON = Path(__file__).parents[2] / "notebooks" / "fault_tolerance.ipynb"

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


class Executed:
    """The notebook after its run."""

    def __init__(self, notebook: Any) -> None:
        self.cells = [cell for cell in notebook.cells if cell.cell_type == "code"]

    def text(self, source: str) -> str:
        """What a reader sees below the cell that has this in its source."""
        [found] = [cell for cell in self.cells if source in cell.source]
        return "".join(map(_text, found.outputs))


def _text(output: Any) -> str:
    if output.output_type == "stream":
        return _ESCAPES.sub("", output.text)
    if output.output_type == "error":
        return _ESCAPES.sub("", "\n".join(output.traceback)) + "\n"
    return output.data.get("text/plain", "") + "\n"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Generator[Executed]:
    loop = ensure_event_loop()
    notebook = nbformat.read(LESSON, as_version=4)
    folder = tmp_path_factory.mktemp("k")
    specs = KernelSpecManager(kernel_dirs=[])  # leaves ipykernel's own, which runs this Python
    manager = AsyncKernelManager(kernel_spec_manager=specs, transport="ipc", ip=str(folder / "k"))
    preload(folder / "profile", [COMPILER, "sklearn.datasets"])
    os.environ["IPYTHONDIR"] = str(folder / "profile")
    try:
        NotebookClient(notebook, km=manager, timeout=100).execute(cleanup_kc=True)
    finally:
        del os.environ["IPYTHONDIR"]
    yield Executed(notebook)
    loop.close()


def test_it_stands_in_the_repository_without_outputs_and_with_ids() -> None:
    notebook = nbformat.read(LESSON, as_version=4)
    nbformat.validate(notebook)
    assert all(cell.id for cell in notebook.cells)
    assert not any(cell.outputs for cell in notebook.cells if cell.cell_type == "code")


def test_only_what_is_to_fail_fails(executed: Executed) -> None:
    failed = [cell for cell in executed.cells if any(out.output_type == "error" for out in cell.outputs)]
    assert all(cell.metadata.get("tags") == ["raises-exception"] for cell in failed)
    assert [cell.outputs[-1].ename for cell in failed] == ["DeviceMeshError", "MeshError", "MeshError"]


def test_a_kill_in_the_middle_of_an_epoch_is_told(executed: Executed) -> None:
    said = executed.text("dies=2 if epoch == 2 else None")
    assert re.search(r"2 ✗ rank 2 \(dp=2, pid \d+\) killed by SIGKILL \(signal 9\) on host \S+", said)
    assert "lost its connection to a rank that is gone, at cell 4 line 2" in said
    assert "pair.cc" not in said
    assert said.endswith("DeviceMeshError: 1 of 4 ranks lost (dp=2)\n")
    cells = [cell for cell in executed.cells if cell.source == "%mesh"]
    assert "3 idle, 1 dead" in _text(cells[0].outputs[0])


def test_it_is_brought_back_with_what_it_needs(executed: Executed) -> None:
    said = executed.text("%mesh restart @dead")
    assert re.match(
        r"rank 2 is back in \d+\.\d s: replayed cell 3; not called again: accuracy\(\), build\(\), save\(\)\n", said
    )
    assert "Error" not in executed.text("m.execute(restore, 1)")


def test_the_accuracy_is_that_of_an_undisturbed_run(executed: Executed) -> None:
    said = executed.text("victims = {4: 0}")
    assert "epoch 4: 1 of 4 ranks lost (dp=0)\n" in said
    found = re.search(r"([\d.]+)% of the held-out digits are recognised, ([\d.]+)% undisturbed", said)
    assert found is not None
    assert 95 < float(found[1]) <= 100
    assert found[1] == found[2]


def test_an_error_ends_the_waiting_of_others(executed: Executed) -> None:
    said = executed.text("a broken image")
    assert "dp=1  ValueError: a broken image" in said
    assert "waiting in barrier; interrupted, state kept" in said
    assert "↻ process groups renewed, as they were out of step" in said
    assert executed.text("x = torch.ones(1) * rank").startswith("6.0   ranks 0-3")


def test_ranks_that_do_not_agree_are_told_apart(executed: Executed) -> None:
    cell = "dist.all_gather_object([None] * world_size, rank)"
    difference = r"≠ rank 3 called all_gather_object at cell 15, line 3; ranks 0-2 called all_reduce at cell 15, line 5"
    assert difference in executed.text(cell)
    assert executed.text("%mesh ledger -n 2").startswith(difference)


def test_a_hang_is_seen_and_ended(executed: Executed) -> None:
    assert re.search(r"cell 17, line 3 +dist\.barrier\(\)", executed.text("%mesh stacks"))
    freed = executed.text("%mesh unstick")
    assert "ranks 0-2 are free; they were at cell 17 line 3" in freed  # the cell behind may tell its end first
    assert "process groups renewed" in freed
    assert "(2, 6.0, 336)   rank 2" in executed.text("(rank, x.item(), len(mine))")


def test_who_is_slow_is_seen_side_by_side(executed: Executed) -> None:
    [line] = [line for line in executed.text("%mesh profile").splitlines() if "time.sleep(0.03)" in line]
    assert re.search(r"0 % +cell 21, line 6 .* rank 1: \d+ %", line)
    assert "interrupted: ranks 0-3" in executed.text("%mesh interrupt")
    assert "6.0   ranks 0-3" in executed.text("-- x.item()")


def test_it_leaves_nothing_behind(executed: Executed) -> None:
    assert "is down: ranks 0-3 exited with code 0" in executed.text("%mesh down")
    pids = re.findall(r"pid (\d+)", "".join(_text(out) for cell in executed.cells for out in cell.outputs))
    assert pids and not any(psutil.pid_exists(int(pid)) for pid in pids)
