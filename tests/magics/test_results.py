"""What a result leaves in the notebook: every figure and value of every rank, without a kernel, in bounds."""

from __future__ import annotations

import re
from typing import Any

import nbformat
import pytest
from nbconvert import HTMLExporter, MarkdownExporter

from tests.magics.front_end import Kernel

pytestmark = [pytest.mark.slow, pytest.mark.real]


MIXED = """%%on_mesh -o mixed
import pandas as pd
from IPython.display import Markdown
from matplotlib.figure import Figure
figure = Figure(figsize=(1, 1))
figure.subplots().plot([rank, 1])
[figure, pd.DataFrame({'column': [f'cell of {rank}']}), torch.arange(25.0).reshape(5, 5), Markdown('*starred*')][rank]
"""


def notebook_of(*outputs: Any) -> Any:
    """What a front-end saves of these cells."""
    cells = []
    for each in outputs:
        shown = [nbformat.v4.new_output("display_data", data=data) for data in each.shown]
        cells.append(nbformat.v4.new_code_cell("%%on_mesh", outputs=shown))
    return nbformat.v4.new_notebook(cells=cells)


def test_every_figure_and_value_is_in_the_exported_page(kernel: Kernel) -> None:
    notebook = notebook_of(kernel.ok(MIXED))
    nbformat.validate(notebook)
    page, _ = HTMLExporter().from_notebook_node(notebook)
    assert page.count("data:image/png;base64,") == 2  # the figure, and the matrix
    for value in ("cell of 1", "min 0  max 24  mean 12  norm 70", "[20., 21., 22., 23., 24.]", "*starred*"):
        assert value in page, value
    markdown, _ = MarkdownExporter().from_notebook_node(notebook)
    assert "cell of 1" in markdown


def test_a_failed_rank_stands_in_the_table_with_its_own_lines(kernel: Kernel) -> None:
    failed = kernel.cell("%%on_mesh -o partly --on-error wait\nif rank == 2:\n    raise ValueError('rank two')\nrank")
    assert failed.status == "error"
    html = failed.shown[0]["text/html"]
    assert "<details><summary>ValueError: rank two</summary>" in html and "→ 3  raise ValueError" in html
    assert "<td>failed</td>" in html


def test_pages_instead_of_a_table(kernel: Kernel) -> None:
    shown = kernel.ok("%%on_mesh --show tabs\n[rank // 2]").shown[0]
    assert shown["text/plain"].split("\n\n")[0].startswith("ranks 0-1  (dp=0,tp=0-1)")
    assert shown["text/html"].count("<details") == 2


def test_a_result_in_one_line_costs_the_notebook_a_kilobyte(kernel: Kernel) -> None:
    shown = kernel.ok("%%on_mesh\n1").shown[0]
    assert sum(map(len, shown.values())) < 1_200


def test_a_table_is_opened_where_somebody_sees_it_and_is_rows_elsewhere(kernel: Kernel) -> None:
    kernel.ok("%%on_mesh -o squares\nrank * rank")
    live = kernel.ok("squares.table()").shown[0]
    assert "application/vnd.jupyter.widget-view+json" in live and live["text/html"].count("<tr") == 5
    executed = kernel.cell("squares.table()", allow_stdin=False)
    assert executed.shown[0].keys() == {"text/plain", "text/html"}
    assert re.search(r"9 +rank 3", executed.shown[0]["text/plain"])


def test_settings_of_the_notebook_count_where_a_line_does_not_say(kernel: Kernel) -> None:
    told = kernel.ok("%mesh config show=none").text
    try:
        assert re.search(r"show +none +\(default: auto\)", told)
        assert kernel.ok("%%on_mesh\nrank").shown == []
        assert kernel.ok("%%on_mesh --show table\nrank").shown
    finally:
        told = kernel.ok("%mesh config show=default").text
    assert "(default" not in told
    assert kernel.ok("%%on_mesh\nrank").shown


def test_records_are_a_table_of_their_entries(kernel: Kernel) -> None:
    shown = kernel.ok("%%on_mesh -o r\n{'loss': rank / 2, 'phase': 'warm-up' if rank else 'train'}").shown
    assert '<th scope="col">loss</th>' in shown[0]["text/html"]
    assert "phase" in shown[0]["text/plain"].splitlines()[0]
    assert kernel.value("list(r.to_pandas()['loss'])") == [0.0, 0.5, 1.0, 1.5]
