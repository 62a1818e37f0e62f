"""What must hold on every ipykernel: output, results, clicks while a cell runs. On 6, which hears none, that is said.

Versions other than the one that is installed are fetched once into `build/ipykernels`, without what they depend on.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meshbook.kernel import spec
from tests.magics.front_end import Kernel
from tests.magics.test_dash import AWAITED, BLOCKED, VIEW, View, connected
from tests.magics.test_panel import TRAIN, Panel
from tests.profiles import leave_torch_out

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.notebook]

CACHE = Path(__file__).parents[2] / "build" / "ipykernels"


def fetched(version: str) -> Path:
    """The folder with an ipykernel of this version and nothing else."""
    folder = CACHE / version
    if not (folder / "ipykernel").exists():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--no-compile"]
        limits = ["--retries", "0", "--timeout", "5", "--target", str(folder)]
        done = subprocess.run([*pip, *limits, f"ipykernel=={version}"], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"ipykernel {version} cannot be fetched here: {done.stderr.strip().splitlines()[-1]}")
    return folder


@pytest.fixture(scope="module", params=["6.29.5", "7.0.0", "7.3.0", "newest"])
def old(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A meshbook kernel on this version, with a mesh."""
    folder = None if request.param == "newest" else fetched(request.param)
    prefix = tmp_path_factory.mktemp("kernel")
    spec.install(str(prefix))
    kernel = Kernel(prefix, before=folder, prepare=leave_torch_out)
    try:
        if folder is not None:
            assert kernel.value("__import__('ipykernel').__version__") == request.param
        kernel.ok("m = %mesh up dp=2 tp=2 --device cpu --pg none")
        yield kernel
    finally:
        kernel.close()


def has_subshells(kernel: Kernel) -> bool:
    return kernel.value("int(__import__('ipykernel').__version__.split('.')[0])") >= 7


def test_output_and_result(old: Kernel) -> None:
    outputs = old.ok("%%on_mesh -o r\nimport sys\nprint('hello')\nprint('odd', rank, file=sys.stderr)\nrank // 2")
    assert outputs.stdout == "0-3 │ hello\n"
    assert sorted(outputs.stderr.splitlines()) == [f"  {rank} │ odd {rank}" for rank in range(4)]
    assert [set(data) for data in outputs.shown] == [{"text/html", "text/plain"}]
    assert old.value("r.values()") == [0, 0, 1, 1]


def test_output_comes_while_the_cell_runs_and_stop_reaches_the_ranks(old: Kernel) -> None:
    # In one line, as a rank may be interrupted right after it has printed.
    cell = old.start("%%on_mesh\nimport time\nprint('in', flush=True); any(time.sleep(0.01) for _ in iter(int, 1))")
    cell.until_all(4, "in")
    old.interrupt()
    assert cell.end().error.startswith("KeyboardInterrupt: interrupted: ranks 0-3")
    assert old.ok("%on_mesh -- 1").status == "ok"


def test_a_cell_in_the_background_tells_from_its_thread(old: Kernel) -> None:
    cell = old.start("%%on_mesh -b -o later\nimport time\ntime.sleep(0.1)\nprint('late')")
    assert cell.end().status == "ok"
    cell.until_all(4, "late")
    assert old.ok("later.result().ok").results == ["True"]


@pytest.mark.parametrize("source", [BLOCKED, AWAITED], ids=["blocked", "awaited"])
def test_clicks_while_a_cell_runs(old: Kernel, source: str) -> None:
    old.ok("%%on_mesh\nNone")
    is_new = has_subshells(old)
    view = shown(old, is_new)
    cell = old.start(source)
    view.until(lambda: view.states() == ["busy"] * 4)
    if is_new:
        assert view.note == ""
        assert view.ack(view.click("interrupt", [1]))["text"] == "interrupted: rank 1"
        view.ack(view.click("interrupt", [0, 2, 3]))
        cell.end()
    else:
        assert "buttons do nothing: ipykernel 6.29.5 hears no clicks then, 7 does" in view.note
        number = view.click("interrupt", [1])
        old.interrupt()
        cell.end()
        # The stop button ends an awaited cell with its ranks; of one that waits for a run it ends the waiting only.
        expected = "rank 1 is not busy" if source == AWAITED else "interrupted: rank 1"
        assert expected in view.ack(number)["text"]
        old.ok("%mesh interrupt")
    view.send("bye")


def test_the_debugger_panel_shows_the_ranks(old: Kernel, leaks: Any) -> None:
    panel = Panel(old)
    panel.switch_on()
    leaks.allow_what_stands()  # debugpy's adapter of the notebook itself
    panel.break_at(TRAIN, 4)
    cell = old.start(TRAIN)
    panel.until(lambda: len(panel.names) == 5, "four ranks")
    rank = int(panel.names[0].split()[1])
    assert panel.variables(f"rank {rank} · loss_of")["scaled"] == f"{[rank, 2 * rank, 3 * rank]}"
    panel.switch_off()
    assert cell.end().status == "ok"


def test_the_debuggers_console_is_there_where_it_hears_its_user(old: Kernel) -> None:
    outputs = old.cell("%mesh debug --console", allow_stdin=True)
    if has_subshells(old):
        assert VIEW in outputs.shown[0], outputs.text
    else:
        assert "hears no clicks then, 7 does; `%mesh debug` asks in the cell" in outputs.error
        assert not outputs.shown


def shown(kernel: Kernel, has_subshells: bool) -> View:
    outputs = kernel.cell("%mesh dash", allow_stdin=True)
    bundle = next(data for data in outputs.shown if VIEW in data)
    return connected(kernel, bundle[VIEW]["model_id"], has_subshells)
