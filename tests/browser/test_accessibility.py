"""axe-core reads our outputs as a screen reader's user meets them: no serious fault, in light and in dark."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

UP = "%load_ext meshbook\nm = %mesh up dp=2 tp=2 --device cpu"

RESULTS = """%%on_mesh -o figures
import pandas as pd, torch
[rank * 0.5, pd.DataFrame({"rank": [rank]}), torch.arange(64.0).reshape(8, 8), "odd"][rank]"""

TENSORS = """%%on_mesh
torch.tensor(float("nan") if rank == 3 else rank / 8)"""

TABLES = """%%on_mesh
import pandas as pd
display(pd.DataFrame({"rank": [rank]}))
pd.DataFrame({f"column {i}": [rank] for i in range(40)})"""

BARS = """%%on_mesh
import sys, time
for step in range(11):
    print(f"\\rtrain: {10 * step:4}%|{'█' * step:10}| {step}/10", end="", file=sys.stderr)
    time.sleep(0.02 * (rank + 1))
print(file=sys.stderr)
print("epoch", rank // 2)"""

STORY = """%%on_mesh
import torch.distributed as dist
if rank == 2:
    raise ValueError("boom")
dist.all_reduce(torch.ones(1))"""

CELLS = {
    "banner": UP,
    "table": RESULTS,
    "numbers": TENSORS,
    "tables": TABLES,
    "explorer": "figures.table()",
    "dashboard": "%mesh dash",
    "bars": BARS,
    "story": STORY,
    "status": "%mesh",
    "names": "%mesh who",
    "difference": "%mesh diff torch.ones(4) * rank",
    "stacks": "%mesh stacks",
    "pages": "%%on_mesh --show tabs\nrank",
    "watch": "%mesh watch rank",
    "logs": "%mesh logs 0",
    "faulty": """from IPython.display import HTML
HTML("<p style='color:#aaa;background:#fff'>pale</p><button></button>")""",
}

# In one run for all outputs: axe reads the whole page each time.
FAULTS = """async () => {
    const cells = [...document.querySelectorAll('.jp-Notebook .jp-Cell')];
    const include = cells.flatMap(cell => [...cell.querySelectorAll('.jp-OutputArea-output')]);
    const rules = { 'page-has-heading-one': { enabled: false }, region: { enabled: false } };  // of whole pages
    const found = await axe.run({ include }, { resultTypes: ['violations'], rules, elementRef: true });
    return found.violations.filter(each => ['serious', 'critical'].includes(each.impact)).flatMap(each =>
        each.nodes.map(node => ({
            cell: cells.findIndex(cell => cell.contains(node.element)),
            rule: each.id, help: each.help, node: node.html.slice(0, 200) + ' | ' + node.failureSummary,
        })));
}"""


def axe() -> str:
    """The script of axe-core, which a package for Python carries."""
    package = importlib.util.find_spec("axe_playwright_python")
    if package is None or package.origin is None:
        pytest.skip("axe-playwright-python, which carries axe-core, is not installed")
    return (Path(package.origin).parent / "axe.min.js").read_text("utf-8")


def faults_on(page: Any) -> dict[str, list[Any]]:
    """By the cell whose output they are in."""
    found: dict[str, list[Any]] = {}
    for fault in page.evaluate(FAULTS):
        found.setdefault([*CELLS][fault["cell"]], []).append(fault)
    return found


def test_axe_finds_no_serious_fault_in_our_outputs(open_notebook: Any) -> None:
    script = axe()
    nb = open_notebook(list(CELLS.values()), is_alone=True)
    for index, name in enumerate(CELLS):
        assert nb.run(index) == "done"
        assert nb.outputs(index), f"{name} shows nothing"
    nb.output(4).locator(".mb-explorer tr[data-rank='2']").click()
    nb.output(4).locator(".mb-explorer img.mb-heat").wait_for()
    nb.page.locator(".mbd[data-frame] .mbd-grid").click(position={"x": 10, "y": 10})
    nb.page.locator(".mbd").get_by_text("rank 0").first.wait_for()
    nb.output(1).locator("summary").last.click()
    nb.page.evaluate(script)
    # axe takes for hidden what is scrolled away, and all that is in a body without a height, as JupyterLab's is.
    nb.page.set_viewport_size({"width": 1200, "height": 6000})
    nb.page.add_style_tag(content="body { height: 100vh !important }")
    all_faults: dict[tuple[str, str], list[Any]] = {}
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        nb.use_theme(theme)
        faults = faults_on(nb.page)
        assert {fault["rule"] for fault in faults.pop("faulty")} == {"color-contrast", "button-name"}  # it does look
        nb.picture(f"outputs_{theme.split()[1].lower()}")
        all_faults |= {(theme, name): found[:4] for name, found in faults.items()}
    assert not all_faults, json.dumps([*all_faults.items()], indent=1, ensure_ascii=False)
