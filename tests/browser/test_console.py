"""The debugger's console in a browser: a stopped rank is looked at, stepped and left while its cell runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.jupyter import Theme

UP = "%load_ext meshbook\nm = %mesh up dp=2 tp=2 --device cpu"

STOP = """%%on_mesh
import torch
def loss_of(model, batch, scale=0.5):
    out = model(batch)
    loss = out.pow(2).mean()
    if rank % 2:
        breakpoint()
    loss = loss * scale
    return loss
loss_of(torch.nn.Linear(4, 2), torch.ones(8, 4))"""


class OnPage:
    """The console on the page."""

    def __init__(self, nb: Any) -> None:
        self.nb = nb
        self.root = nb.page.locator(".mbc")
        self.root.wait_for()

    def at(self, query: str) -> Any:
        return self.root.locator(query)

    def wait(self, words: str) -> None:
        """Wait until somebody asks whose prompt has these words."""
        self.nb.page.wait_for_function(
            "([root, words]) => root.dataset.asks.includes(words)", arg=[self.root.element_handle(), words]
        )

    def wait_text(self, query: str, text: str) -> None:
        self.at(query).filter(has_text=text).first.wait_for()

    def type(self, line: str) -> None:
        self.at("input").fill(line)
        self.at("input").press("Enter")


@pytest.mark.parametrize("theme", [pytest.param("JupyterLab Light", marks=pytest.mark.wide), "JupyterLab Dark"])
def test_a_stopped_rank_is_looked_at_and_left(open_notebook: Any, theme: Theme) -> None:
    nb = open_notebook([UP, "%mesh debug --console", STOP], theme=theme, is_alone=True)
    assert nb.run(0) == "done" and nb.run(1) == "done"
    console = OnPage(nb)
    nb.start(2)
    console.wait("ipdb>")
    console.wait_text(".mbc-stops button", "rank 3")
    console.at(".mbc-stops button").filter(has_text="rank 3").click()
    console.wait("rank 3")
    console.wait_text(".mbc-vars tr", "Tensor float32 [8, 4]")
    console.at("[data-line=n]").click()
    console.wait_text(".mbc-here", "loss = loss * scale")
    console.type("p loss.shape")
    console.wait_text(".mbc-out", "torch.Size([])")
    console.at("input").press_sequentially("p sca")
    console.at("input").press("Tab")
    nb.page.wait_for_function("input => input.value === 'p scale'", arg=console.at("input").element_handle())
    console.at("input").fill("")
    console.at("input").press("ArrowUp")
    assert console.at("input").input_value() == "p loss.shape"
    nb.picture(f"console_{theme.split()[1].lower()}", console.root)
    console.at(".mbc-frames button").last.click()
    console.wait_text(".mbc-here", "loss_of(torch.nn.Linear")
    console.at("[data-line=q]").click()
    assert nb.wait_done() == "done"
    nb.page.wait_for_function("root => root.dataset.asks === ''", arg=console.root.element_handle())
    assert nb.errors == []
