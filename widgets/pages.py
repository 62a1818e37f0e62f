"""`--show tabs`: a page for each group of equal ranks, one open at a time. Needs no script: where even the style is
stripped, the pages stand below each other.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from html import escape

from ..kernel.failures.story import without_escapes
from ..kernel.values.results import MeshResult
from ..kernel.values.rows import Row, clipped
from .style import RESULT_STYLE
from .value import Values

_MAX_PAGES = 256
_TEXT_BUDGET = 20_000


class Pages:
    """A result, page by page; equal ranks share one."""

    def __init__(self, result: MeshResult) -> None:
        self.result = result

    def __repr__(self) -> str:
        rows = self.result.rows()
        room = max(200, _TEXT_BUDGET // len(rows))
        sections = [f"{_title(row)}\n{clipped(without_escapes(row.text), room) or 'done'}" for row in rows[:_MAX_PAGES]]
        return "\n\n".join([*sections, *_more(rows)])

    def _repr_html_(self) -> str:
        rows = self.result.rows()[:_MAX_PAGES]
        values, group = Values(rows), f"mb-{uuid.uuid4().hex[:8]}"
        pages = [_page(row, values.page(row), group, row is rows[0]) for row in rows]
        more = "".join(f'<div class="mb-foot">{line}</div>' for line in _more(self.result.rows()))
        label = f"result of {len(self.result):,} ranks, {len(rows):,} pages"
        region = f'<div class="meshbook mb-pages" role="region" aria-label="{label}">'
        return f"{RESULT_STYLE}{region}{''.join(pages)}{more}</div>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


def _title(row: Row) -> str:
    where = f"({row.coords})" if "," in row.coords else ""
    away = f"Δ {row.away}" if row.is_odd and row.away else row.spread
    return "  ".join(filter(None, [row.marker, row.who, where, away, row.facts, row.gist, row.time, row.note]))


def _page(row: Row, body: str, group: str, is_open: bool) -> str:
    kind = "mb-page mb-bad" if row.is_failed else "mb-page mb-odd" if row.is_odd else "mb-page"
    # Of details with one name, a browser keeps one open.
    opened = " open" if is_open else ""
    title = escape(_title(row))
    return f'<details class="{kind}" name="{group}"{opened}><summary>{title}</summary><div>{body}</div></details>'


def _more(rows: Sequence[Row]) -> list[str]:
    hidden = len(rows) - _MAX_PAGES
    return [f"… {hidden:,} more pages are in the result"] if hidden > 0 else []
