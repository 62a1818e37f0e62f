"""The pictures of README, from a real page: `build/screenshots/readme_*.png`, to be copied to `docs/`."""

from __future__ import annotations

from typing import Any

import pytest

UP = "%load_ext meshbook\nm = %mesh up dp=2 tp=4 --device cpu"

LOSS = """%%on_mesh -o loss
import torch, torch.distributed as dist
for step in range(3):
    print("step", step)
    if rank == 7 and step == 1:
        print("warning: loss is nan")
torch.tensor(float("nan") if rank == 7 else 0.4178)"""

BROKEN = """%%on_mesh dp=1
if coord["tp"] == 3:
    raise ValueError("loss is nan")
dist.all_reduce(torch.ones(4), group=group)"""

FAILED = """%%on_mesh @failed
{axis: int(i) for axis, i in coord.items()}, rank"""

TRAIN = """%%on_mesh
import meshbook, time
for step in meshbook.progress(range(2000), desc="step"):
    meshbook.log(step=step, loss=2 * 0.99**step + 0.05 * rank + 0.1 * torch.rand(()).item())
    time.sleep(0.01)"""


@pytest.mark.wide
def test_the_notebook_of_readme(open_notebook: Any) -> None:
    nb = open_notebook([UP, LOSS, BROKEN, FAILED], is_alone=True)
    nb.page.set_viewport_size({"width": 1180, "height": 990})
    for index in range(4):
        assert nb.run(index) == "done"
    nb.wait_text(0, "ready in")  # the line tells of ranks at work, too
    nb.page.locator(".jp-Cell").first.scroll_into_view_if_needed()
    nb.picture("readme_notebook", nb.page.locator(".jp-WindowedPanel-outer"))
    assert [bool(nb.outputs(index)) for index in range(4)] == [True] * 4
    assert not nb.errors


@pytest.mark.wide
def test_the_dashboard_of_readme(open_notebook: Any) -> None:
    nb = open_notebook([UP, "%mesh dash", "%%on_mesh\nimport torch", TRAIN], is_alone=True)
    for index in range(3):
        assert nb.run(index) == "done"
    nb.start(3)
    board = nb.page.locator(".mbd")
    board.get_by_text("8 busy").first.wait_for()
    board.locator(".mbd-grid").click(position={"x": 2 + 2.5 * 19, "y": 2 + 1.5 * 19})
    board.get_by_text("median and range, and rank 6").wait_for()
    nb.page.wait_for_function("() => Number(document.querySelector('.mbd').dataset.frame) > 24")
    nb.picture("readme_dashboard", board)
    nb.press_stop()
    nb.wait_done()
    assert not nb.errors
