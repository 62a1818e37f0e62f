"""Progress bars, widgets and watched numbers of ranks, as a reader sees them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.jupyter import Theme

UP = "%load_ext meshbook\nm = %mesh up dp=2 tp=2 --device cpu"

BARS = """%%on_mesh
import os, sys, time
def bar(steps):
    for step in range(steps + 1):
        share = step / steps
        print(f"\\rtrain: {100 * share:4.0f}%|{'█' * int(20 * share):20}| {step}/{steps}", end="", file=sys.stderr)
        time.sleep(0.002 * (rank + 1))
    print(file=sys.stderr)
bar(200)
print("epoch done")"""

SLIDER = """%%on_mesh dp=0
import ipywidgets
from IPython.display import display
slider = ipywidgets.IntSlider(value=3 + rank, description=f"rank {rank}")
slider.observe(lambda change: print("moved to", change.new), "value")
display(slider)"""

LOSS = """%%on_mesh
import math
for step in range(60):
    loss = math.exp(-step / 20) * (1 + rank // 2 * 0.3)
    time.sleep(0.03)"""


CIRCLES = """%%on_mesh
from IPython.display import SVG, clear_output, display
for step in range(3):
    clear_output(wait=True)
    circle = f"<circle cx='200' cy='150' r='{40 + 20 * rank + step}' fill='#56b4e9'/>"
    display(SVG(f"<svg xmlns='http://www.w3.org/2000/svg' width='400' height='300'>{circle}</svg>"))
    time.sleep(0.1)"""


@pytest.mark.parametrize("theme", [pytest.param("JupyterLab Light", marks=pytest.mark.wide), "JupyterLab Dark"])
def test_bars_widgets_and_watches(open_notebook: Any, theme: Theme) -> None:
    nb = open_notebook(
        [UP, BARS, SLIDER, "%mesh watch loss --every 0.1", LOSS, "%mesh watch --stop", CIRCLES],
        theme=theme,
        kernel="torchless",
        is_alone=True,
    )
    name = theme.rpartition(" ")[2].lower()
    assert nb.run(0) == "done"
    nb.start(1)
    nb.wait_text(1, "train:")
    nb.picture(f"bars_running_{name}")
    assert nb.wait_done() == "done"
    assert nb.run(2) == "done"
    handle = nb.output(2).locator(".widget-slider", has_text="rank 1").locator(".noUi-handle")
    handle.focus()
    handle.press("ArrowRight")
    nb.wait_text(2, "moved to 5")
    nb.picture(f"widgets_{name}")
    assert nb.run(3) == "done"
    assert nb.run(4) == "done"
    assert nb.run(5) == "done"
    nb.wait_text(3, "ended")
    assert nb.output(3).locator("svg[role=img]").count() >= 2  # ranks are not looked at in the same step
    nb.picture(f"watch_{name}")
    assert nb.run(6) == "done"
    wall = nb.output(6).locator(".mb-wall")
    assert wall.locator("img").evaluate_all("all => all.map(image => image.naturalWidth)") == [400] * 4
    assert wall.bounding_box()["height"] < 250  # one row
    wall.get_by_text("rank 2").click()
    assert wall.locator("img").nth(2).bounding_box()["width"] == 400
    nb.picture(f"pictures_{name}")
    block, *_, done = nb.outputs(1)  # the slot of the table of who had answered is empty
    assert block["data"]["text/plain"].count("100%") == 1
    assert done["text"].endswith("epoch done\n")
    assert not nb.errors
