"""A notebook from its first cell to its last, as `jupyter execute` and papermill run it."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import HTMLExporter, MarkdownExporter

from tests.magics.said import ranks_in, who_said
from tests.profiles import leave_torch_out

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.notebook]

Run = Callable[..., Any]


@pytest.fixture
def run_all(tmp_path: Path) -> Generator[Run]:
    """Runs cells in a kernel of their own; stops at the first that fails, as Run All does."""

    def run(*cells: str, has_torch: bool = False) -> Any:
        if not has_torch:
            leave_torch_out(tmp_path)
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        manager = AsyncKernelManager(kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
        client = NotebookClient(notebook, km=manager, timeout=60, resources={"metadata": {"path": str(tmp_path)}})
        try:
            client.execute(cleanup_kc=True, env=os.environ | {"IPYTHONDIR": str(tmp_path)})
        except CellExecutionError as error:
            notebook.metadata["failure"] = error
        return notebook

    yield run


def texts(cell: Any) -> str:
    return "".join(
        output.text if output.output_type == "stream" else output.get("data", {}).get("text/plain", "") + "\n"
        for output in cell.outputs
    )


def test_run_all_stops_at_a_failing_cell(run_all: Run) -> None:
    notebook = run_all(
        "%load_ext meshbook",
        "m = %mesh up dp=2",
        "%%on_mesh -o r\nimport torch, torch.distributed as dist\nx = torch.ones(1)\ndist.all_reduce(x)\nx.item()",
        "r.values(), list(m.axes)",
        "# why\n%%on_mesh\nprint('hi')\nif rank == 1:\n    raise ValueError('boom')",
        "print('never')",
        has_torch=True,
    )
    assert texts(notebook.cells[2]).startswith("2.0   ranks 0-1")
    assert texts(notebook.cells[3]) == "([2.0, 2.0], ['dp'])\n"
    failure = notebook.metadata.pop("failure")
    assert (failure.ename, failure.evalue) == ("MeshError", "1 of 2 ranks failed (dp=1)")
    assert texts(notebook.cells[4]).startswith("0-1 │ hi\n")
    assert notebook.cells[4].outputs[-1].ename == "MeshError"
    assert notebook.cells[5].outputs == []
    for exporter in (HTMLExporter(), MarkdownExporter()):
        page, _ = exporter.from_notebook_node(notebook)
        assert "ValueError: boom" in page


def test_who_reads_it_later_finds_the_whole_traceback(run_all: Run) -> None:
    cell = "%%on_mesh\nimport json\nif rank: json.loads('{')"
    notebook = run_all("%load_ext meshbook", "m = %mesh up dp=2 --pg none", cell)
    told = "\n".join(notebook.cells[2].outputs[-1].traceback)
    assert "in raw_decode\n" in told and told.index("in raw_decode") < told.index("1 of 2 ranks failed")
    assert "%tb" not in told


def test_run_all_stops_at_a_mistake(run_all: Run) -> None:
    notebook = run_all("%load_ext meshbook", "%%on_mesh\n1", "print('never')")
    failure = notebook.metadata["failure"]
    assert failure.ename == "UsageError"
    assert failure.evalue.startswith("there is no mesh yet: bring one up with `%mesh up dp=2`")
    assert notebook.cells[2].outputs == []


def test_what_is_saved_can_be_shown_without_a_kernel(run_all: Run, until: Callable[..., None]) -> None:
    notebook = run_all(
        "%load_ext meshbook\n%mesh up dp=2 --pg none",
        "%%on_mesh\nimport os\nos.getpid()",
        "%%on_mesh 0\nimport matplotlib.pyplot as plt\nplt.plot([1, 2]);",
        "%mesh",
    )
    assert "failure" not in notebook.metadata
    pids = [int(line.split()[0]) for line in texts(notebook.cells[1]).splitlines()]
    assert len(pids) == 2
    until(lambda: not any(map(psutil.pid_exists, pids)), 3)
    page, _ = HTMLExporter().from_notebook_node(notebook)
    figures = [out for cell in notebook.cells for out in cell.outputs if "image/png" in out.get("data", {})]
    assert len(figures) == 1
    assert figures[0].data["image/png"].strip() in page.replace("\n", "")
    assert all(str(pid) in page for pid in pids)
    assert all("widget" not in mime for cell in notebook.cells for out in cell.outputs for mime in out.get("data", {}))


def test_what_is_saved_of_progress_bars_is_their_last_state(run_all: Run) -> None:
    notebook = run_all(
        "%load_ext meshbook\n%mesh up -n 2 --device cpu",
        "%%on_mesh\nimport sys, time, torch.distributed as dist\ndist.barrier()\nfor i in range(41):\n"
        "    print(f'\\r{i}/40', end='', file=sys.stderr)\n    time.sleep(0.01)\n"
        "print(file=sys.stderr)\ndist.barrier()\nprint('done')",
    )
    [bars, done] = notebook.cells[1].outputs  # what one rank prints while the other's bar moves would part them
    assert bars.data == {"text/plain": "0-1 │ 40/40"}
    assert len(who_said(done.text, "done")) == 2


def test_a_flood_of_lines_leaves_a_small_notebook_that_says_where_the_rest_is(run_all: Run) -> None:
    flood = "%%on_mesh\nfor i in range(10_000):\n    print(f'rank {rank} says line {i}')"
    notebook = run_all("%load_ext meshbook\n%mesh up -n 8 --pg none --device cpu", flood)
    assert len(nbformat.writes(notebook)) <= 64 << 10
    said = texts(notebook.cells[1])
    # The first lines are those of whoever spoke first.
    assert any(f"  {rank} │ rank {rank} says line 0\n" in said for rank in range(8))
    lines = [line.partition("│") for line in said.splitlines() if "│" in line]
    assert {rank for who, _, text in lines if text.endswith("9999") for rank in ranks_in(who)} == {*range(8)}
    [gap] = [line for line in said.splitlines() if "more lines" in line]
    assert gap.endswith("`%mesh logs` has all")
    assert int(gap.split()[2].replace(",", "")) == 80_000 - sum(len(ranks_in(who)) for who, *_ in lines)


def test_what_comes_late_is_in_the_cell_that_runs_then(run_all: Run) -> None:
    notebook = run_all(
        "%load_ext meshbook\n%mesh up -n 2 --pg none",
        "%%on_mesh -b -o f\nimport os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('late')\nrank",
        "open('go', 'w').close()\nf.result()\nprint('after')",
        "%mesh watch rank",
        "%mesh watch --stop",
    )
    assert texts(notebook.cells[1]) == "<MeshFuture cell 2: 0 of 2 ranks done>\n"
    assert [line.partition("   ")[0] for line in texts(notebook.cells[2]).splitlines()] == [
        "0-1 │ late",
        "0",
        "1",
        "after",
    ]
    assert "ended" in texts(notebook.cells[3]), "a display is brought up to date where it stands"
