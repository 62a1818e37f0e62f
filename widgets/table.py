"""A result as HTML that needs no kernel, no script and no style to be read: one line, or a table of rows.

Where scripts run, a short one adds what needs it: rows are sorted, filtered and copied.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Final

from ..kernel.values.records import entry_text
from ..kernel.values.results import MeshResult
from ..kernel.values.rows import Row, clipped, record_columns
from ..runtime.ranges import ranks_text
from .exhibit import Exhibit, can_hang, exhibit, side_by_side
from .style import EXHIBITS_STYLE, LINE_STYLE, RESULT_STYLE
from .value import Values, has_details, plain

MAX_ROWS: Final = 2_000
_TOOLS_FROM: Final = 5
"""Rows from which a table is worth its tools; a smaller one is taken in at a glance."""
_MAX_BLOCKS: Final = 3
_MAX_BYTES: Final = 8_000_000
"""Of what stands side by side; of more, a table has what one opens."""
_MAX_TABLES: Final = 16
"""Values that are tables, side by side; of more, the rows of one table are seen sooner."""
_ONE_LINE: Final = 120_000
_WIDE: Final = 60


@dataclass(frozen=True, slots=True)
class _Column:
    """One column: its title, the HTML of its cells, and what they are sorted by where that is not their text."""

    title: str
    cell: Callable[[Row], str]
    key: Callable[[Row], float | None] | None = None
    is_value: bool = False


def result_html(result: MeshResult) -> str:
    """A result as HTML: pass it to `MeshResult` as `render_html`.

    What ranks print is escaped; their `text/html` is shown as it is, like the output of any cell.
    """
    rows = result.rows()
    about = f"result of {_count(len(result), 'rank')}"
    if len(rows) == 1 and not rows[0].is_failed and "\n" not in rows[0].text and not has_details(rows[0]):
        return LINE_STYLE + _region(about, _line(rows[0]))
    if result.is_folded and (exhibits := _exhibits(rows)):
        foot = f'<div class="meshbook">{_foot(result, rows)}</div>'
        return f'{EXHIBITS_STYLE}<div role="region" aria-label="{escape(about)}">{side_by_side(exhibits)}{foot}</div>'
    about = f"{about}, {_count(len(rows), 'row')}"
    table = table_html(rows[:MAX_ROWS], tuple(result.axes), about)
    overview = result.rows(at_a_glance=True)
    if len(overview) < len(rows):
        glance = table_html(overview, tuple(result.axes), f"{about}, at a glance", has_tools=False)
        all_rows = f"<summary>all {len(rows):,} rows</summary>"
        table = f'{glance}<details class="mb-all">{all_rows}{table}</details>'
    script = f"<script>{_tools()}</script>" if len(rows) >= _TOOLS_FROM else ""
    return RESULT_STYLE + _region(about, table + _foot(result, rows)) + script


def _exhibits(rows: Sequence[Row]) -> list[Exhibit]:
    """The values of all rows with the ranks of each, if all can stand side by side, are several, and not too much."""
    if len(rows) < 2 or not all(map(_can_hang, rows)):
        return []
    shown = [_exhibit(row) for row in rows]
    num_tables = sum(not each.is_picture for each in shown)
    is_much = num_tables > _MAX_TABLES or sum(len(each.html) for each in shown) > _MAX_BYTES
    return [] if is_much else shown


def _can_hang(row: Row) -> bool:
    return row.value is not None and not row.note and can_hang(row.value.mime, {})


def _exhibit(row: Row) -> Exhibit:
    assert row.value is not None
    caption = " ".join(filter(None, [row.marker, row.who]))
    return exhibit(caption, row.value.mime, {}, alt=row.text)


def table_html(rows: Sequence[Row], axes: Sequence[str], caption: str, has_tools: bool | None = None) -> str:
    """A table of rows; its caption is for those who hear it."""
    columns = _columns(rows, axes)
    has_tools = len(rows) >= _TOOLS_FROM if has_tools is None else has_tools
    first = "rank" if len(axes) > 1 else " ".join(dict.fromkeys(["rank", *axes]))
    head = f'<th scope="col" data-axis="{escape(first)}">ranks</th>'
    head += "".join(_head(column.title, column.title in axes) for column in columns)
    body = "\n".join(_row(row, columns, has_tools) for row in rows)
    heard = f'<caption class="mb-heard">{escape(caption)}</caption>'
    return f"<table>{heard}<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"


def _region(label: str, body: str) -> str:
    return f'<div class="meshbook mb-result" role="region" aria-label="{escape(label)}">{body}</div>'


@cache
def _tools() -> str:
    """The script without its comments and indents: each table carries it."""
    source = (Path(__file__).parent / "static" / "tools.js").read_text("utf-8")
    return "(()=>{" + re.sub(r"(?m)^\s*(//.*)?\n?", "", source) + "enhance(document)})()"


def _line(row: Row) -> str:
    about = " · ".join(filter(None, [row.who, row.spread, row.facts, row.time, row.note]))
    value = f"<code>{plain(row.text, _ONE_LINE)}</code> &nbsp; " if row.text else ""
    return f'{value}<span class="mb-dim">{escape(about)}</span>'


def _columns(rows: Sequence[Row], axes: Sequence[str]) -> Iterable[_Column]:
    columns = [_axis(axes, number) for number in range(len(axes))] if len(axes) > 1 else []
    are_numbers = any(row.numbers for row in rows)
    entries = record_columns(rows)
    columns += [_entry(name) for name in entries]
    if not entries:
        columns.append(_Column("value", Values(rows).html, _number if are_numbers else None, is_value=True))
    elif any(not row.record for row in rows):
        values = Values(rows)
        columns.append(_Column("value", lambda row: "" if row.record else values.html(row), is_value=True))
    if any(row.away for row in rows):
        columns.append(_Column("Δ to median", _away, _number))
    if any(row.facts for row in rows):
        columns.append(_Column("type", lambda row: escape(row.facts)))
    if any(row.time for row in rows):
        columns.append(_Column("time", lambda row: row.time, lambda row: row.seconds[1] if row.seconds else None))
    if entries and any(row.note for row in rows):  # else it stands behind the value
        columns.append(_Column("note", lambda row: escape(row.note)))
    if any(row.is_failed for row in rows):
        columns.append(_Column("state", lambda row: row.state))
    return columns


def _entry(name: str) -> _Column:
    """The column of an entry of records, such as `{"loss": loss, "norm": norm}`."""

    def number(row: Row) -> float | None:
        entry = row.record.get(name)
        return float(entry) if isinstance(entry, int | float) and entry == entry else None

    def html(row: Row) -> str:
        if name not in row.record:
            return ""
        text = f"<code>{plain(entry_text(row.record[name]), _WIDE)}</code>"
        return f'<span class="mb-mark">{text}</span>' if name in row.odd_entries else text

    return _Column(name, html, number, is_value=True)


def _axis(axes: Sequence[str], number: int) -> _Column:
    return _Column(
        axes[number],
        lambda row: _indices([block[number] for block in row.blocks]),
        lambda row: float(row.blocks[0][number].strip("(").partition("-")[0].partition(",")[0]),
    )


def _indices(texts: Sequence[str]) -> str:
    """A line for each block; the lines of all axes stand side by side."""
    lines = [escape(text) for text in texts[:_MAX_BLOCKS]] + ["…"] * (len(texts) > _MAX_BLOCKS)
    return "<br>".join(lines)


def _number(row: Row) -> float | None:
    return row.numbers[0] if row.numbers and row.numbers[0] == row.numbers[0] else None


def _away(row: Row) -> str:
    is_marked = row.is_odd or row.away.lstrip("-") in ("nan", "inf")
    return f'<span class="mb-mark">{row.away}</span>' if is_marked else row.away


def _head(title: str, is_axis: bool) -> str:
    axis = f' data-axis="{escape(title)}"' if is_axis else ""
    return f'<th scope="col"{axis}>{escape(title)}</th>'


def _row(row: Row, columns: Iterable[_Column], has_tools: bool) -> str:
    kind = ' class="mb-bad"' if row.is_failed else ' class="mb-odd"' if row.is_odd else ""
    what = "failed" if row.is_failed else "differs from the majority"
    mark = f'<span class="mb-mark" title="{what}">{row.marker}</span> ' if row.marker else ""
    key = f' data-v="{row.ranks[0]}"' if has_tools else ""
    head = f'<th scope="row"{key}>{mark}{escape(clipped(ranks_text(row.ranks), 60))}</th>'
    return f"<tr{kind}>{head}{''.join(_cell(row, column, has_tools) for column in columns)}</tr>"


def _cell(row: Row, column: _Column, has_tools: bool) -> str:
    html = column.cell(row)
    key = _key(column.key(row), html) if has_tools and column.key is not None else ""
    kind = ' class="mb-value"' if column.is_value else ""
    return f"<td{kind}{key}>{html}</td>"


def _key(number: float | None, html: str) -> str:
    """What a cell is sorted by, where that is not its text: nan and what is missing stand last."""
    text = "" if number is None else f"{number:.9g}"
    return "" if text == html else f' data-v="{text}"'


def _foot(result: MeshResult, rows: Sequence[Row]) -> str:
    parts: list[str] = []
    usual = [row for row in rows if not row.is_odd and not row.is_failed]
    if len(usual) == 1 and len(rows) > 1:
        parts.append(f"{len(usual[0].ranks):,} of {len(result):,} equal")
    if num_failed := sum(len(row.ranks) for row in rows if row.is_failed):
        parts.append(f"{num_failed:,} failed")
    if len(rows) > MAX_ROWS:
        parts.append(f"{len(rows) - MAX_ROWS:,} more rows are in the result")
    if result.name:
        alone = [row for row in rows if row.is_odd and len(row.ranks) == 1]
        parts += [f"<code>{result.name}[{alone[0].ranks[0]}]</code>"] if alone else []
        parts += [f"<code>{result.name}.table()</code>"] if len(result) > 1 else []
    return f'<div class="mb-foot">{" · ".join(parts)}</div>' if parts else ""


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
