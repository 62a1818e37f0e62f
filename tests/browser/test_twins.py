"""What a notebook shows that was saved while its widgets were live, and is opened with another kernel: their twins."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.jupyter import FrontEnd

CELLS = [
    "%load_ext meshbook\nm = %mesh up -n 2 --device cpu --pg none",
    "%mesh dash",
    "%mesh debug --console",
    "%mesh watch x --every 0.1",
    "%%on_mesh -o r\nx = rank / 7\nx",
    "r.table()",
    "%%on_mesh\nimport time\nprint('in', flush=True)\ntime.sleep(60)",
]

LIVE = {1: ".mbd", 2: ".mbc", 5: ".mb-explorer"}
"""Widgets by cell."""


@pytest.mark.parametrize("front_end", ["lab", pytest.param("notebook", marks=pytest.mark.wide)])
def test_a_saved_notebook_reads_in_every_kernel(open_notebook: Any, front_end: FrontEnd) -> None:
    nb = open_notebook(CELLS, front_end=front_end, kernel="torchless", is_alone=True)
    for index in range(6):
        assert nb.run(index) == "done"
    for index, live in LIVE.items():
        nb.output(index).locator(f"meshbook-live {live}").wait_for()
    nb.save()
    nb.reload()  # the kernel goes on
    for index, live in LIVE.items():
        nb.output(index).locator(live).wait_for()
    nb.start(6)
    nb.wait_text(6, "0 of 2 ranks done")
    nb.wait_text(1, "2 busy")
    nb.save()
    nb.picture(f"{front_end}_twins_live")
    nb.shut_down()
    other = nb.file.with_name(f"reopened_{front_end}.ipynb")
    other.write_bytes(nb.file.read_bytes())
    nb.page.goto(nb.page.url.replace(nb.file.stem, other.stem))
    nb.wait_until_ready()
    for index, text in {1: "as it was at", 2: "debugger of mesh", 3: "over time", 5: "value", 6: "ranks done"}.items():
        nb.wait_text(index, text)
    for index, live in LIVE.items():
        assert nb.output(index).locator(live).count() == 0
    assert nb.page.get_by_text("model not found").count() == 0
    nb.picture(f"{front_end}_twins")
    assert not [error for error in nb.errors if "Cannot send" not in error]
