"""The stop button in a browser: what is asked about a rank that works on, and the question that goes."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.timeout(180)

STUBBORN = """%%on_mesh
import pathlib, time
print('in')
while rank == 1 and not pathlib.Path('enough').exists():
    try:
        time.sleep(0.05)
    except KeyboardInterrupt:
        print('no')"""


BOX = "input.jp-Stdin-input"


def test_the_menu_asks_looks_inside_and_goes_when_the_rank_reacts(open_notebook: Any) -> None:
    nb = open_notebook(
        ["%load_ext meshbook\nm = %mesh up gpus=2 --device cpu --pg none", STUBBORN, "%on_mesh -- rank + 41"],
        kernel="torchless",
        is_alone=True,
    )
    assert nb.run(0) == "done"
    nb.start(1)
    nb.wait_text(1, "in")
    nb.press_stop()
    nb.wait_text(1, "was interrupted, and works on (cell ")
    assert nb.page.locator(BOX).count() == 0, "what ends by itself leaves no box"
    nb.press_stop()
    nb.page.locator(BOX).wait_for()
    nb.wait_text(1, "rank 1 was interrupted, and works on")
    nb.picture("stop_menu")
    answer(nb, "stop>", "a 1")
    answer(nb, "ipdb>", "import pathlib; pathlib.Path('enough').touch()")
    nb.wait_text(1, f"rank 1 (gpus=1) is stopped at cell {nb.count(0) + 1} line ")
    answer(nb, "ipdb>", "c")
    nb.wait_done()  # it has reacted, so that `stop>` stands there no more
    nb.wait_text(1, "KeyboardInterrupt")
    nb.picture("stop_menu_gone")
    assert nb.page.locator(BOX).count() == 0
    assert nb.run(2) == "done"
    nb.wait_text(2, "42")
    assert nb.errors == []


def answer(nb: Any, prompt: str, line: str) -> None:
    """Type a line behind a prompt, and wait until its box is gone."""
    asked = nb.page.locator(".jp-Stdin", has=nb.page.locator(".jp-Stdin-prompt", has_text=prompt))
    box = asked.locator("input").element_handle()
    box.fill(line)
    box.press("Enter")
    box.wait_for_element_state("hidden")
