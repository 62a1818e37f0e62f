"""The dashboard in a browser: it shows what ranks do, and its buttons work while a cell runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.jupyter import FrontEnd

UP = "%load_ext meshbook\nm = %mesh up dp=2 tp=4 --device cpu"

LOOP = """%%on_mesh --on-error wait
import time, meshbook
print("begun", flush=True)
deadline = time.monotonic() + 60
for step in meshbook.progress(range(100_000), desc="step"):
    meshbook.log(step=step, loss=1 / (step + 1 + rank))
    time.sleep(0.01)
    if (time.monotonic() > deadline) or (step > 40 and globals().get("stop")): break
"""

MADE_UP = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2] / "benchmarks")!r})
import dashboard
made = dashboard.made_up_dashboard(churn=0.2)
made._source.report(1024)
made
"""


def wait_frames(nb: Any, more: int = 1) -> None:
    """Wait until so many more frames were painted."""
    now = int(nb.page.locator(".mbd").first.get_attribute("data-frame") or 0)
    nb.page.wait_for_function("n => Number(document.querySelector('.mbd').dataset.frame) >= n", arg=now + more)


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_look(open_notebook: Any, theme: str) -> None:
    nb = open_notebook([UP, "%mesh dash", LOOP, MADE_UP], theme=theme)
    assert nb.run(0) == "done"
    assert nb.run(1) == "done"
    nb.page.wait_for_timeout(2000)
    print(nb.errors)
    nb.page.locator(".mbd[data-frame]").first.wait_for()
    nb.picture(f"dash_idle_{theme[-4:]}")
    nb.start(2)
    nb.wait_text(2, "begun")
    nb.page.locator(".mbd-grid").first.click(position={"x": 50, "y": 10})
    wait_frames(nb, 8)
    nb.picture(f"dash_busy_{theme[-4:]}")
    nb.page.locator(".mbd [data-action=stacks]").first.click()
    nb.page.locator(".mbd pre").first.wait_for()
    nb.picture(f"dash_stacks_{theme[-4:]}")
    nb.page.locator(".mbd [data-action=interrupt]").first.click()
    nb.page.get_by_text("interrupted: rank 2").wait_for()
    wait_frames(nb, 4)
    nb.picture(f"dash_interrupted_{theme[-4:]}")
    nb.press_stop()
    nb.wait_done()
    nb.run(3)
    nb.page.locator(".mbd[data-frame]").nth(1).wait_for()
    nb.page.wait_for_timeout(3000)
    nb.page.locator(".mbd select").nth(1).select_option("metric:loss")
    nb.page.wait_for_timeout(2000)
    nb.page.locator(".mbd").nth(1).scroll_into_view_if_needed()
    nb.picture(f"dash_1024_{theme[-4:]}")
    print(nb.errors)
