"""A result as HTML that needs no kernel, no script and no style to be read: one line, or a table of rows."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from html import escape
from typing import Final

from ..kernel.fold import ranks_text
from ..kernel.results import MeshResult
from ..kernel.rows import Row, clipped
from ..kernel.story import without_escapes
from .style import STYLE

MAX_ROWS: Final = 2_000
_TEXT_BUDGET: Final = 120_000
"""Characters of text that all rows have together; a notebook with large outputs opens slowly."""
_RICH_BUDGET: Final = 4_000_000
_MAX_OPEN: Final = 3
"""So many rich values are shown at once; with more, one opens those that one wants."""
_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")


def result_html(result: MeshResult) -> str:
    """A result as HTML: pass it to `MeshResult` as `render_html`.

    What ranks print is escaped; their `text/html` is shown as it is, like the output of any cell.
    """
    rows = result.rows()
    about = f"result of {_count(len(result), 'rank')}"
    if len(rows) == 1 and not rows[0].is_failed and "\n" not in rows[0].text and not _has_rich(rows[0]):
        return _framed(about, _line(rows[0]))
    body = _table(rows[:MAX_ROWS], has_coords=len(result.axes) > 1)
    return _framed(f"{about}, {_count(len(rows), 'row')}", body + _foot(rows, len(result)))


def _framed(label: str, body: str) -> str:
    return f'{STYLE}<div class="meshbook" role="region" aria-label="{escape(label)}">{body}</div>'


def _line(row: Row) -> str:
    about = " · ".join(filter(None, [row.who, row.facts, row.time]))
    value = f"<code>{_plain(row.text, _TEXT_BUDGET)}</code> &nbsp; " if row.text else ""
    return f'{value}<span class="mb-dim">{escape(about)}</span>'


def _table(rows: Sequence[Row], has_coords: bool) -> str:
    columns = ["ranks", *(["place"] if has_coords else []), "value"]
    has_facts, has_time = any(row.facts for row in rows), any(row.time for row in rows)
    columns += ["type"] * has_facts + ["time"] * has_time
    head = "".join(f'<th scope="col">{column}</th>' for column in columns)
    show = _Values(rows)
    lines: list[str] = []
    for row in rows:
        cells = [f'<td class="mb-dim">{escape(row.coords)}</td>'] if has_coords else []
        cells.append(f"<td>{show.html(row)}</td>")
        cells += [f'<td class="mb-dim">{escape(row.facts)}</td>'] * has_facts
        cells += [f'<td class="mb-dim">{escape(row.time)}</td>'] * has_time
        lines.append(f"<tr{_row_class(row)}>{_row_head(row)}{''.join(cells)}</tr>")
    body = "\n".join(lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"


def _row_class(row: Row) -> str:
    return ' class="mb-bad"' if row.is_failed else ' class="mb-odd"' if row.is_odd else ""


def _row_head(row: Row) -> str:
    what = "failed" if row.is_failed else "differs from the majority"
    mark = f'<span class="mb-mark" title="{what}">{row.marker}</span> ' if row.marker else ""
    return f'<th scope="row">{mark}{escape(clipped(ranks_text(row.ranks), 60))}</th>'


def _foot(rows: Sequence[Row], num_ranks: int) -> str:
    parts: list[str] = []
    usual = [row for row in rows if not row.is_odd and not row.is_failed]
    if len(usual) == 1 and len(rows) > 1:
        parts.append(f"{len(usual[0].ranks):,} of {num_ranks:,} equal")
    if num_failed := sum(len(row.ranks) for row in rows if row.is_failed):
        parts.append(f"{num_failed:,} failed")
    if len(rows) > MAX_ROWS:
        parts.append(f"{len(rows) - MAX_ROWS:,} more rows are in the result")
    return f'<div class="mb-foot">{" · ".join(parts)}</div>' if parts else ""


class _Values:
    """Draws the values of one table, which share a budget: of many rows each has little room."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._room = max(80, _TEXT_BUDGET // max(len(rows), 1))
        self._rich_left = _RICH_BUDGET
        self._are_open = sum(map(_has_rich, rows)) <= _MAX_OPEN

    def html(self, row: Row) -> str:
        note = f' <span class="mb-dim">{escape(row.note)}</span>' if row.note else ""
        return (self._rich(row) or self._text(row)) + note

    def _rich(self, row: Row) -> str | None:
        rich = _rich_html(row)
        if rich is None or len(rich) > self._rich_left:
            return None
        self._rich_left -= len(rich)
        first = without_escapes(row.text).strip().partition("\n")[0]
        is_open = " open" if self._are_open else ""
        return f"<details{is_open}><summary>{_plain(first, 80)}</summary>{rich}</details>"

    def _text(self, row: Row) -> str:
        text = _plain(row.text, self._room)
        if not text:
            return '<span class="mb-dim">done</span>'
        return f"<pre>{text}</pre>" if "\n" in text else f"<code>{text}</code>"


def _has_rich(row: Row) -> bool:
    return row.value is not None and any(mime in _RICH for mime in row.value.mime)


def _rich_html(row: Row) -> str | None:
    """The richest form of a value that a page can show without help."""
    mimes = row.value.mime if row.value is not None else {}
    mime = next((mime for mime in _RICH if mime in mimes), None)
    return _RICH[mime](mimes[mime]) if mime is not None else None


def _image(mime: str) -> Callable[[str], str]:
    return lambda data: f'<img alt="" src="data:{mime};base64,{escape("".join(data.split()))}">'


def _svg(source: str) -> str:
    # As an image, not as markup: scripts inside it stay dead and its ids cannot collide with another rank's.
    return _image("image/svg+xml")(b64encode(source.encode("utf-8", "replace")).decode())


_RICH: Final[dict[str, Callable[[str], str]]] = {
    "text/html": lambda source: f"<div>{source}</div>",
    "image/svg+xml": _svg,
    **{mime: _image(mime) for mime in _IMAGES},
}


def _plain(text: str, limit: int) -> str:
    return escape(clipped(without_escapes(text), limit))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
