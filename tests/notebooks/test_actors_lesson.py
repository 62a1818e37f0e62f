"""The lesson about actors, executed: what a reader sees in it is true."""

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

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.notebook, pytest.mark.timeout(120)]

LESSON = Path(__file__).parents[2] / "notebooks" / "actors.ipynb"

_FAULT = re.compile(r"^meshbook: unhandled fault: .*\n", re.MULTILINE)


AFTER_FAULTS = """
import threading

for thread in threading.enumerate():
    if thread.name == "meshbook-fault":
        thread.join()
"""
"""A cell that ends when faults were told, 0.2 s after them: a fast machine is at the end of the lesson by then."""


class Executed:
    """The notebook after its run."""

    def __init__(self, notebook: Any) -> None:
        self.cells = [cell for cell in notebook.cells if cell.cell_type == "code"]

    def text(self, source: str) -> str:
        """What a reader sees below the cell that has this in its source, without late faults."""
        [found] = [cell for cell in self.cells if source in cell.source]
        return _FAULT.sub("", "".join(map(_text, found.outputs)))

    def faults(self) -> list[str]:
        """Lines of failures that nobody waited for: told 0.2 s after them, below whatever cell runs then."""
        return _FAULT.findall("".join(_text(output) for cell in self.cells for output in cell.get("outputs", [])))

    def lines(self, source: str) -> list[str]:
        return [line.strip() for line in self.text(source).splitlines()]


def _text(output: Any) -> str:
    if output.output_type == "stream":
        return output.text
    return output.data.get("text/plain", "") + "\n"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Generator[Executed]:
    loop = ensure_event_loop()
    notebook = nbformat.read(LESSON, as_version=4)
    death = next(place for place, cell in enumerate(notebook.cells) if "leave.call_one()" in cell.source)
    notebook.cells.insert(death + 1, nbformat.v4.new_code_cell(AFTER_FAULTS))
    folder = tmp_path_factory.mktemp("k")
    specs = KernelSpecManager(kernel_dirs=[])  # leaves ipykernel's own, which runs this Python
    manager = AsyncKernelManager(kernel_spec_manager=specs, transport="ipc", ip=str(folder / "k"))
    os.environ["IPYTHONDIR"] = str(folder / "profile")
    try:
        NotebookClient(notebook, km=manager, timeout=60).execute(cleanup_kc=True)
    finally:
        del os.environ["IPYTHONDIR"]
    yield Executed(notebook)
    loop.close()


def test_it_stands_in_the_repository_without_outputs_and_with_ids() -> None:
    notebook = nbformat.read(LESSON, as_version=4)
    nbformat.validate(notebook)
    assert all(cell.id for cell in notebook.cells)
    assert not any(cell.outputs for cell in notebook.cells if cell.cell_type == "code")


def test_an_actor_mesh_shows_its_endpoints(executed: Executed) -> None:
    lines = executed.lines('m.spawn("counters"')
    assert lines[0] == "ActorMesh counters of Counter · dp=2 × tp=2 · 4 ranks · alive"
    assert "add(n)  Add to the value." in lines


def test_what_counters_print_is_folded_below_the_call(executed: Executed) -> None:
    assert executed.lines("counters.add.call(5)") == ["0-3 │ now 15", "ValueMesh({dp: 2, tp: 2}):", "0-3: 15"]
    assert executed.lines("add.call_one(100)") == ["0 │ now 115", "(115, 15)"]


def test_a_redefined_class_is_the_new_one(executed: Executed) -> None:
    assert executed.text("doubling.double") == "[42, 42, 42, 42]\n"


def test_two_meshes_play(executed: Executed) -> None:
    *said, hits = executed.lines("left.hit.call_one")
    by_speaker = [[line for line in said if line.startswith(speaker)] for speaker in ("left", "right")]  # each in order
    assert (by_speaker, hits) == (
        [["left 0 │ ping 1", "left 0 │ ping 3"], ["right 0 │ pong 2", "right 0 │ pong 4"]],
        "4",
    )


def test_three_meshes_hand_on(executed: Executed) -> None:
    assert executed.text("split.take.broadcast") == "[7, 15, 5]\n"


def test_the_pool_finds_every_page_once(executed: Executed) -> None:
    assert executed.text("fetchers.fetch.choose") == "9 pages, fetched by 4 actors: 9 fetches\n"


def test_an_error_is_matched_by_its_type_and_has_the_other_answers(executed: Executed) -> None:
    first, second = executed.lines("except ValueError")
    assert re.fullmatch(r"Actor call picky.halve failed on rank [13] \(.*\): ValueError: [57] is odd", first)
    assert second == "answers by rank: {0: 2, 2: 3}"


def test_a_death_is_told_and_the_slice_lives_on(executed: Executed) -> None:
    said = executed.text("leave.call_one()")
    assert re.search(r"Endpoint call picky.leave\(\) failed, rank 3 \(dp=1,tp=1, pid \d+\) exited with code 7", said)
    assert executed.lines("counters.slice(dp=0).read")[1:] == ["0: 115", "1: 15"]
    assert [line for line in executed.faults() if line.startswith("meshbook: unhandled fault: counters on rank 3: ")]
    actors = "\n".join(executed.lines("%mesh actors"))
    assert re.search(r"^counters +Counter +m0 +dp=2 × tp=2 +0-3 +✝ dead 3, others alive$", actors, re.MULTILINE)
    assert re.search(r"^left +Player +left +p=1 +0 +● alive", actors, re.MULTILINE)


def test_the_boss_hears_of_it_and_the_other_worker_works(executed: Executed) -> None:
    heard = "(['ZeroDivisionError: integer division or modulo by zero'], 25)\n"
    assert executed.text("boss.heard.call_one().get(), workers") == heard


def test_it_leaves_nothing_behind(executed: Executed) -> None:
    assert "ranks 0-2 exited with code 0; rank 3 exited with code 7" in executed.text("%mesh down")
    [pid] = re.findall(r"pid (\d+)", executed.text("leave.call_one()").splitlines()[-2])
    assert not psutil.pid_exists(int(pid))
