"""A small table as HTML that needs no kernel, no script and no style to be read; some of its rows stand out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from .style import STYLE

_SHORT = 24
"""Texts up to here stay in one line however narrow the page; longer ones are broken, a head after its commas."""


@dataclass(frozen=True, slots=True)
class SheetRow:
    """The texts of a row, the first one its head; `mark` (such as `≠`) makes it stand out, and says why."""

    cells: Sequence[str]
    mark: str = ""
    why: str = ""


def sheet_html(
    label: str, title: str, columns: Sequence[str], rows: Sequence[SheetRow], remarks: Sequence[str] = ()
) -> str:
    """A table with its title and, below it, remarks. All texts are escaped.

    Example:
        >>> "<td>1 &lt; 2</td>" in sheet_html("sums", "", ["name", "is"], [SheetRow(["x", "1 < 2"], "≠", "odd")])
        True
    """
    table = table_of(columns, map(_row, rows)) if rows else ""
    above = f"<div>{escape(title)}</div>" if title else ""
    below = "".join(f'<div class="mb-foot">{escape(remark)}</div>' for remark in remarks)
    region = f'<div class="meshbook" role="region" aria-label="{escape(label)}">'
    return f"{STYLE}{region}{above}{table}{below}</div>"


def table_of(columns: Sequence[str], rows: Iterable[str]) -> str:
    """The table of a sheet alone; its rows are HTML, with cells of `cell_html`."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "\n".join(rows)
    return f'<table class="mb-sheet"><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>'


def cell_html(text: str) -> str:
    """A cell of such a table. A short text stays in one line, however much room the long ones of its row would take.

    Example:
        >>> cell_html("0.74 s"), cell_html("works behind cell 5, waiting")
        ('<td>0.74 s</td>', '<td class="mb-long">works behind cell 5, waiting</td>')
    """
    return f"<td{_kind(text)}>{escape(text)}</td>"


def _row(row: SheetRow) -> str:
    first, *others = row.cells
    head = escape(first)
    if kind := _kind(first):
        head = re.sub(r",(?=\S)", ",<wbr>", head)
    mark = f'<span class="mb-mark" title="{escape(row.why)}">{escape(row.mark)}</span> ' if row.mark else ""
    odd = ' class="mb-odd"' if row.mark else ""
    return f'<tr{odd}><th scope="row"{kind}>{mark}{head}</th>{"".join(map(cell_html, others))}</tr>'


def _kind(text: str) -> str:
    return ' class="mb-long"' if len(text) > _SHORT else ""
