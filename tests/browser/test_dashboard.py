"""The dashboard in a browser: it shows what ranks do, and its buttons work while a cell runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.jupyter import FrontEnd, Theme

UP = "%load_ext meshbook\nm = %mesh up dp=2 tp=4 --device cpu"

TRAIN = """%%on_mesh --on-error wait
import time, meshbook
print("begun", flush=True)
for step in meshbook.progress(range(100_000), desc="step"):
    meshbook.log(step=step, loss=2 * 0.97 ** step + 0.1 * rank)
    time.sleep(0.02)
"""

BLOCKED = "run = m.run('import time\\nwhile True: time.sleep(0.01)')\nrun.finished.get(60); sorted(run.progress.failed)"

MADE_UP = f"""import sys
sys.path.insert(0, {str(Path(__file__).parents[2] / "benchmarks")!r})
import dashboard, time
made = dashboard.made_up_dashboard(churn=0.2)
for _ in range(150):
    made._source.refresh(0.0)
    made._source.report(64)
made"""

TROUBLE = "made._source.trouble(time.monotonic())"

DASH = "%mesh dash"


class Dash:
    """One dashboard on the page."""

    def __init__(self, nb: Any, place: int = 0) -> None:
        self.nb = nb
        self.root = nb.page.locator(".mbd").nth(place)
        self.root.locator("xpath=self::*[@data-frame]").wait_for()

    def at(self, query: str) -> Any:
        return self.root.locator(query)

    def press(self, action: str) -> None:
        self.at(f"[data-action={action}]").click()

    def select(self, column: int, row: int, cell: int = 19, **options: Any) -> None:
        self.at(".mbd-grid").click(position={"x": 2 + (column + 0.5) * cell, "y": 2 + (row + 0.5) * cell}, **options)

    def wait(self, text: str) -> None:
        self.root.get_by_text(text).first.wait_for()

    def wait_frames(self, more: int) -> None:
        now = int(self.root.get_attribute("data-frame"))
        script = "([root, n]) => Number(root.dataset.frame) >= n"
        self.nb.page.wait_for_function(script, arg=[self.root.element_handle(), now + more])


def opened(open_notebook: Any, *cells: str, **options: Any) -> tuple[Any, Dash]:
    """A notebook with a mesh and its dashboard, and more cells that have not run."""
    nb = open_notebook([UP, DASH, *cells], **options)
    assert nb.run(0) == "done"
    assert nb.run(1) == "done"
    return nb, Dash(nb)


@pytest.mark.parametrize(
    ("front_end", "cell"),
    [
        pytest.param("lab", TRAIN, id="lab-awaited"),
        pytest.param("lab", BLOCKED, marks=pytest.mark.wide, id="lab-blocked"),
        pytest.param("notebook", TRAIN, marks=pytest.mark.wide, id="notebook-awaited"),
        pytest.param("notebook", BLOCKED, id="notebook-blocked"),
    ],
)
def test_a_click_stops_one_rank_while_the_cell_runs(open_notebook: Any, front_end: FrontEnd, cell: str) -> None:
    nb, dash = opened(open_notebook, cell, front_end=front_end, kernel="warm")
    nb.start(2)
    dash.wait("8 busy")
    dash.select(2, 0)
    dash.wait(f"cell {nb.count(1) + 1} line" if cell is TRAIN else "busy for")
    dash.press("interrupt")
    dash.wait("interrupted: rank 2")
    dash.wait("7 busy")
    dash.wait("1 failed")
    dash.at(".mbd-grid").press("Home")
    dash.at(".mbd-grid").press("Shift+End")
    dash.press("interrupt")
    dash.wait("interrupted: ranks")
    assert nb.wait_done() == "done"
    assert not nb.errors


@pytest.mark.parametrize("front_end", ["lab", pytest.param("notebook", marks=pytest.mark.wide)])
def test_ranks_are_selected_by_mouse_and_by_keys_and_spelled(open_notebook: Any, front_end: FrontEnd) -> None:
    nb, dash = opened(open_notebook, front_end=front_end, kernel="warm")
    spelled = dash.at(".mbd-pick code")
    dash.select(1, 0)
    assert spelled.text_content() == "dp=0,tp=1"
    dash.select(3, 1, modifiers=["Shift"])
    assert spelled.text_content() == "tp=1:"
    grid = dash.at(".mbd-grid")
    grid.press("Home")
    assert spelled.text_content() == "dp=0,tp=0"
    grid.press("ArrowDown")
    grid.press("Shift+ArrowRight")
    assert spelled.text_content() == "dp=1,tp=:2"
    assert dash.at(".mbd-spoken").text_content() == "rank 5, dp=1, tp=1, idle"
    dash.wait("2 ranks")
    grid.press("Shift+End")
    assert spelled.text_content() == "dp=1"
    grid.press("Escape")
    assert spelled.text_content() == ""
    assert nb.page.evaluate("jupyterapp.shell.currentWidget.content.widgets.length") == 2  # no key was a command
    assert not nb.errors


@pytest.mark.parametrize("theme", [pytest.param("JupyterLab Light", marks=pytest.mark.wide), "JupyterLab Dark"])
def test_pictures(open_notebook: Any, theme: Theme) -> None:
    name = f"dashboard_{theme.split()[-1].lower()}"
    nb, dash = opened(open_notebook, TRAIN, MADE_UP, TROUBLE, theme=theme, kernel="warm")
    nb.start(2)
    dash.wait("8 busy")
    dash.select(2, 1)
    dash.wait_frames(10)
    dash.press("stacks")
    dash.wait("time.sleep")
    nb.picture(name, dash.root)
    nb.press_stop()
    nb.wait_done()
    nb.run(3)
    large = Dash(nb, 1)
    large.at("select").select_option("metric:loss")
    large.select(37, 2, cell=10)
    large.wait_frames(6)
    nb.picture(f"{name}_1024_loss", large.root)
    large.at("select").select_option("state")
    nb.run(4)
    large.wait("rank 37 is")
    large.wait_frames(2)
    nb.picture(f"{name}_1024", large.root)
    assert float(large.root.get_attribute("data-drawn")) < 1000  # milliseconds; about 1 on a quiet machine
    assert not nb.errors


def test_a_reloaded_page_is_live_again_and_a_mesh_that_ended_is_static(open_notebook: Any) -> None:
    nb, dash = opened(open_notebook, "%mesh down", kernel="torchless", is_alone=True)
    dash.wait("all 8 ranks idle")
    nb.save()
    nb.reload()
    Dash(nb).wait("all 8 ranks idle")
    assert nb.run(2) == "done"
    Dash(nb).wait("the mesh was taken down")
    nb.reload()
    Dash(nb).wait("the mesh was taken down")
    assert not nb.errors


def test_a_dashboard_whose_kernel_was_restarted_says_so(open_notebook: Any) -> None:
    nb, dash = opened(open_notebook, "r = %on_mesh -- rank\nr.table()", kernel="torchless", is_alone=True)
    assert nb.run(2) == "done"
    table = nb.page.locator(".mb-explorer")
    table.locator("tbody tr").first.wait_for()
    dash.wait("live")
    nb.page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
    dash.wait("the kernel has ended, or was restarted; this is the last state")
    dash.select(2, 0)
    assert dash.at(".mbd-pick code").text_content() == "dp=0,tp=2"
    assert all(button.is_disabled() for button in dash.at(".mbd-buttons button").all())
    table.locator("button", has_text="keep as static").click()
    table.get_by_text("the kernel has ended").wait_for()
    assert not nb.errors


def test_the_last_state_stays_in_the_notebook(open_notebook: Any) -> None:
    nb, dash = opened(open_notebook, "%mesh down", kernel="warm")
    dash.wait("all 8 ranks idle")
    assert nb.run(2) == "done"
    nb.wait_text(1, "its last state")
    assert nb.page.locator(".mbd").count() == 0
    (output,) = nb.outputs(1)
    assert output["data"].keys() == {"text/html", "text/plain"}
    nb.picture("dashboard_static", nb.output(1))
    assert not nb.errors
