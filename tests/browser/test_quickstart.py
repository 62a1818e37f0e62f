"""What a new user does first, in JupyterLab and in Notebook 7."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.jupyter import FrontEnd, Theme

UP = "%load_ext meshbook\nm = %mesh up dp=2 tp=2 --device cpu"

BUSY = """%%on_mesh
import time
print("first", flush=True)
while True:
    time.sleep(0.01)
"""


QUICKSTART = Path(__file__).parents[2] / "notebooks" / "quickstart.ipynb"


@pytest.mark.parametrize(
    ("front_end", "theme"),
    [("lab", "JupyterLab Dark"), pytest.param("notebook", "JupyterLab Light", marks=pytest.mark.wide)],
)
def test_all_cells_of_the_quickstart(open_notebook: Any, front_end: FrontEnd, theme: Theme) -> None:
    nb = open_notebook(QUICKSTART, front_end=front_end, theme=theme, kernel="learner", is_alone=True)
    assert nb.run_all(120) == "done"
    figures = 0
    for is_loaded_again in (False, True):  # what is in the file is all there
        if is_loaded_again:
            nb.save()
            nb.reload()
        page = nb.page.locator(".jp-Cell-outputArea")
        page.get_by_text("is down: ranks 0-3 exited").wait_for()
        assert page.get_by_text("of the held-out digits are recognised").count() == 1
        assert page.get_by_text("run again on it alone").count() == 1
        assert page.locator(".meshbook").count() >= 6
        assert not page.get_by_text("model not found").count()
        assert page.locator("img").count() >= max(figures, 1)
        figures = page.locator("img").count()
        nb.page.locator(".jp-Cell", has_text="ValueError(f").last.scroll_into_view_if_needed()
        nb.picture(f"quickstart_{front_end}")
    assert not nb.errors


@pytest.mark.parametrize("front_end", ["lab", "notebook"])
def test_a_cell_streams_what_ranks_say_and_shows_what_they_return(open_notebook: Any, front_end: FrontEnd) -> None:
    nb = open_notebook([UP, BUSY], front_end=front_end, kernel="torchless", is_alone=True)
    assert nb.run(0) == "done"
    nb.start(1)
    nb.wait_text(1, "first")
    nb.picture(f"{front_end}_running")
    nb.press_stop()
    assert nb.wait_done() == "done"
    assert any(output["output_type"] == "error" for output in nb.outputs(1))
    nb.write(1, "%%on_mesh\nrank * rank")
    assert nb.run(1) == "done"
    (table,) = [output for output in nb.outputs(1) if "data" in output]
    assert "9" in table["data"]["text/plain"]
    nb.picture(f"{front_end}_table")
    assert not nb.errors
