"""A small table as HTML that needs no kernel, no script and no style to be read; some of its rows stand out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from .style import STYLE


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
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "\n".join(map(_row, rows))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>" if rows else ""
    above = f"<div>{escape(title)}</div>" if title else ""
    below = "".join(f'<div class="mb-foot">{escape(remark)}</div>' for remark in remarks)
    region = f'<div class="meshbook" role="region" aria-label="{escape(label)}">'
    return f"{STYLE}{region}{above}{table}{below}</div>"


def _row(row: SheetRow) -> str:
    first, *others = map(escape, row.cells)
    mark = f'<span class="mb-mark" title="{escape(row.why)}">{escape(row.mark)}</span> ' if row.mark else ""
    kind = ' class="mb-odd"' if row.mark else ""
    cells = "".join(f"<td>{each}</td>" for each in others)
    return f'<tr{kind}><th scope="row">{mark}{first}</th>{cells}</tr>'
