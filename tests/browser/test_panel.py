"""JupyterLab's debugger panel in a browser: a click in the gutter of a `%%on_mesh` cell stops its ranks."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.browser.jupyter import Theme

UP = "m = %mesh up gpus=3 --device cpu --pg none"

TRAIN = """%%on_mesh
def loss_of(batch):
    scaled = sum(batch) * rank
    total = scaled + 1
    return total
loss = loss_of([1, 2, 3])
loss"""

HERE = """def double(x):
    y = x * 2
    return y
double(21)"""


class OnPage:
    """The panel on the page."""

    def __init__(self, nb: Any) -> None:
        self.nb = nb
        self.frames = nb.page.locator(".jp-DebuggerCallstackFrame")

    def switch(self, to: str) -> None:
        """Click the bug."""
        self.nb.page.locator(".jp-DebuggerBugButton").first.click()
        self.nb.page.locator(f".jp-DebuggerBugButton[aria-pressed={to}]").first.wait_for()

    def click_gutter(self, cell: int, line: int) -> None:
        gutter = self.nb.page.locator(".jp-Notebook .jp-Cell").nth(cell).locator(".cm-breakpoint-gutter")
        gutter.locator(".cm-gutterElement").nth(line).click()  # the first is a spacer
        self.nb.page.locator(".jp-DebuggerBreakpoint-line", has_text=re.compile(f"^{line}$")).first.wait_for()

    def press(self, command: str) -> None:
        """Press a button above the frames."""
        self.nb.page.locator(f"[data-command='debugger:{command}']").first.click()

    def until_frames(self, *names: str) -> None:
        """Wait until these frames are listed, and no others."""
        self.nb.page.wait_for_function(
            """names => JSON.stringify(names) === JSON.stringify(
                [...document.querySelectorAll('.jp-DebuggerCallstackFrame-name')].map(each => each.textContent))""",
            arg=list(names),
        )

    def until_variable(self, name: str, value: int) -> None:
        shown = f".jp-DebuggerVariables-name:text-is('{name}') + .jp-DebuggerVariables-detail:text-is('{value}')"
        self.nb.page.locator(f".jp-DebuggerVariables-body {shown}").wait_for()

    def until_line(self, cell: int, text: str) -> None:
        """Wait until this line of a cell is marked."""
        cells = self.nb.page.locator(".jp-Notebook .jp-Cell")
        cells.nth(cell).locator(".jp-DebuggerEditor-highlight", has_text=text).wait_for()


def listed(first: int) -> list[str]:
    """The frames while all three ranks are stopped in the function."""
    others = [f"rank {rank} · loss_of" for rank in range(3) if rank != first]
    return [f"rank {first} · loss_of", f"rank {first} · <module>", *others]


@pytest.mark.parametrize("theme", ["JupyterLab Light", pytest.param("JupyterLab Dark", marks=pytest.mark.wide)])
def test_ranks_are_stopped_by_a_click_in_the_gutter_switched_and_let_go(open_notebook: Any, theme: Theme) -> None:
    nb = open_notebook([UP, TRAIN, HERE], theme=theme, kernel="meshbook", is_alone=True)
    panel = OnPage(nb)
    assert nb.run(0) == "done"
    panel.switch("true")
    panel.click_gutter(1, 4)
    nb.start(1)
    panel.frames.nth(3).wait_for()
    first = int(re.findall(r"\d", panel.frames.first.inner_text())[0])
    panel.until_frames(*listed(first))
    panel.until_line(1, "total = scaled + 1")
    panel.until_variable("scaled", 6 * first)
    nb.picture(f"panel_{theme.split()[1].lower()}")
    other = next(rank for rank in range(3) if rank != first)
    panel.frames.filter(has_text=f"rank {other}").click()
    panel.until_variable("scaled", 6 * other)
    panel.until_frames(*listed(other))
    panel.press("next")
    panel.until_line(1, "return total")
    panel.until_variable("total", 6 * other + 1)
    nb.picture(f"panel_switched_{theme.split()[1].lower()}")
    panel.press("continue")
    panel.frames.filter(has_text=f"rank {other}").first.wait_for(state="detached")
    panel.switch("false")  # which lets the rest go on
    assert nb.wait_done() == "done"
    nb.wait_text(1, "13")
    panel.switch("true")
    panel.click_gutter(2, 2)
    nb.start(2)
    panel.until_line(2, "y = x * 2")
    panel.until_frames("double", "<module>")
    panel.press("continue")
    assert nb.wait_done() == "done"
    nb.wait_text(2, "42")
    assert nb.errors == []
