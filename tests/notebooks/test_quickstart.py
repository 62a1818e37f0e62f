"""The quickstart, run as `make demo` runs it: what a reader sees in it is true."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from jupyter_core.utils import ensure_event_loop
from nbconvert import HTMLExporter

from tests.profiles import COMPILER, preload

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.notebook, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def load_demo() -> Any:
    """`notebooks/demo.py`, which is no module of the package."""
    spec = importlib.util.spec_from_file_location("demo", ROOT / "notebooks" / "demo.py")
    assert spec is not None and spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    return demo


class Executed:
    """The notebook after its run."""

    def __init__(self, notebook: Any, failure: str | None, printed: str) -> None:
        self.notebook, self.failure, self.printed = notebook, failure, printed
        self.cells = [cell for cell in notebook.cells if cell.cell_type == "code"]

    def cell(self, source: str) -> Any:
        """The one cell that has this in its source."""
        [found] = [cell for cell in self.cells if source in cell.source]
        return found

    def text(self, source: str) -> str:
        """What a reader sees below that cell."""
        return "".join(map(_text, self.cell(source).outputs))


def _text(output: Any) -> str:
    if output.output_type == "stream":
        return output.text
    if output.output_type == "error":
        return _ESCAPES.sub("", "\n".join(output.traceback))
    return output.data.get("text/plain", "") + "\n"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    loop = ensure_event_loop()
    profile = tmp_path_factory.mktemp("profile")
    preload(profile, [COMPILER, "sklearn.datasets"])
    demo = load_demo()
    printed: list[str] = []
    demo.print = lambda *words, **_: printed.append(" ".join(map(str, words)))
    notebook = nbformat.read(demo.NOTEBOOK, as_version=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(profile))
        failure = demo.run(notebook)
    yield Executed(notebook, failure, "\n".join(printed))
    loop.close()


def test_it_runs_to_its_end(executed: Executed) -> None:
    assert executed.failure is None
    assert all(cell.execution_count for cell in executed.cells)
    failed = [cell for cell in executed.cells if any(out.output_type == "error" for out in cell.outputs)]
    assert [cell.source.splitlines()[0] for cell in failed] == ["%%on_mesh"]
    assert failed[0].metadata["tags"] == ["raises-exception"]


def test_a_mesh_of_four_comes_up(executed: Executed) -> None:
    assert re.match(
        r"mesh m0   dp=2 × tp=2 · 4 ranks on (cpu · gloo|cuda · nccl) · ready in ", executed.text("%mesh up")
    )


def test_ranks_compute_together(executed: Executed) -> None:
    assert executed.text("-o total").startswith("tensor(24.")
    assert "ranks 0-3" in executed.text("-o total")
    assert "[24., 24.]" in executed.text("total.stack()")


def test_what_is_equal_is_told_once(executed: Executed) -> None:
    lines = executed.text('print("step 1")').splitlines()
    assert lines == ["0-3 │ step 1", "  3 │ warning: my disk is slow", "0-3 │ step 2"]


def test_a_slice_has_its_own_group(executed: Executed) -> None:
    shown = executed.text("group=group")
    assert shown.count("tensor([5.]") == 2
    assert "rank 2" in shown and "rank 3" in shown
    assert "rank 0" not in shown


def test_losses_differ_between_ranks_and_gradient_norms_do_not(executed: Executed) -> None:
    table = executed.cell("train_epoch()\n    rows").outputs[-1].data["text/plain"].splitlines()
    epochs = [[float(number) for number in line.split()[1:]] for line in table if re.match(r"\d+ ", line)]
    assert len(epochs) == 8
    assert all(len(set(epoch[:4])) > 1 for epoch in epochs)
    assert all(len(set(epoch[4:])) == 1 for epoch in epochs)
    assert max(epochs[-1][:4]) < min(epochs[0][:4]) / 2


def test_digits_nobody_trained_on_are_recognised(executed: Executed) -> None:
    found = re.search(r"([\d.]+)% of the held-out digits", executed.text("held-out digits are recognised"))
    assert found is not None
    assert 95 < float(found[1]) <= 100


def test_the_figure_of_one_rank_is_there(executed: Executed) -> None:
    figures = [out.data["image/png"] for out in executed.cell("imshow").outputs if "image/png" in out.get("data", {})]
    assert len(figures) == 1
    assert len(figures[0]) > 2_000


def test_the_failing_cell_says_who_what_and_where(executed: Executed) -> None:
    shown = executed.text("broken image")
    assert "✗ 1 of 4 ranks failed" in shown
    assert "dp=1,tp=0  ValueError: rank 2 found a broken image" in shown
    assert "MeshError: 1 of 4 ranks failed (dp=1,tp=0)" in shown
    assert "magics" not in shown
    assert "still here on rank 2" in executed.text("%%on_mesh @failed")


def test_the_mesh_is_in_use_to_the_end(executed: Executed) -> None:
    pids = [int(pid) for pid in re.findall(r"pid (\d+)", _text(executed.cells[-2].outputs[0]))]
    assert len(pids) == 4
    assert "ranks 0-3 exited with code 0" in executed.text("%mesh down")
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_what_is_printed_and_saved_tells_the_same(executed: Executed) -> None:
    page, _ = HTMLExporter().from_notebook_node(executed.notebook)
    for words in ("0-3 │ step 1", "rank 2 found a broken image", "held-out digits are recognised"):
        assert words in executed.printed
        assert words in page
    assert "\x1b[" not in executed.printed
