"""What a new user does first, in JupyterLab and in Notebook 7."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.jupyter import FrontEnd

UP = "%load_ext meshbook\nm = %mesh up dp=2 tp=2 --device cpu"

BUSY = """%%on_mesh
import time
print("first", flush=True)
while True:
    time.sleep(0.01)
"""


@pytest.mark.parametrize("front_end", ["lab", "notebook"])
def test_a_cell_streams_what_ranks_say_and_shows_what_they_return(open_notebook: Any, front_end: FrontEnd) -> None:
    nb = open_notebook([UP, BUSY], front_end=front_end)
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
