"""A watched number, drawn: a sparkline a rank, equal ones as one, in one scale. Text and HTML say the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from ..kernel.dashboard.series import Series, bounds, sparkline
from ..runtime.ranges import ranks_text
from .style import STYLE

MOST_ROWS = 40
"""Rows that are drawn; the other ranks are counted."""

_WIDTH, _HEIGHT = 240, 24


class WatchView:
    """What `%mesh watch` shows."""

    def __init__(self, path: str, series: Mapping[int, Series], reasons: Mapping[int, str], is_over: bool) -> None:
        self._path = path
        self._is_over = is_over
        self._low, self._high = bounds(list(series.values()))
        self._rows = _rows(series, reasons)

    def bundle(self) -> dict[str, str]:
        """The forms for a front-end."""
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    @property
    def _head(self) -> str:
        scale = f"   {_figure(self._low)} to {_figure(self._high)}" if any(row.points for row in self._rows) else ""
        return f"{self._path}{scale}{'   ended' if self._is_over else ''}"

    def __repr__(self) -> str:
        shown = self._rows[:MOST_ROWS]
        width = max([3, *(len(row.who) for row in shown)])
        lines = [f"{row.who:>{width}} │ {self._spark(row)}" for row in shown]
        if len(self._rows) > MOST_ROWS:
            lines.append(f"{'…':>{width}} ┆ {len(self._rows) - MOST_ROWS:,} more")
        return "\n".join([f"watch {self._head}", *lines])

    def _spark(self, row: _Row) -> str:
        words = [sparkline(row.points, self._low, self._high), _figure(row.points[-1])] if row.points else []
        return "  ".join([*words, f"({row.reason})"] if row.reason else words) or "(nothing yet)"

    def _repr_html_(self) -> str:
        rows = [self._html(row) for row in self._rows[:MOST_ROWS]]
        if len(self._rows) > MOST_ROWS:
            rows.append(f"<tr><th>…</th><td colspan=2>{len(self._rows) - MOST_ROWS:,} more</td></tr>")
        head = "<thead><tr><th>ranks</th><th>over time</th><th>last</th></tr></thead>"
        scale = escape(self._head[len(self._path) :].strip().replace("   ", " · "))
        title = f"<div><b>{escape(self._path)}</b> <span class='mb-dim'>{scale}</span>"
        return f"{STYLE}<div class='meshbook'>{title}</div><table>{head}<tbody>{''.join(rows)}</tbody></table></div>"

    def _html(self, row: _Row) -> str:
        last = _figure(row.points[-1]) if row.points else ""
        why = f" <span class='mb-dim'>{escape(row.reason or ('' if row.points else 'nothing yet'))}</span>"
        return f"<tr><th scope='row'>{row.who}</th><td>{self._svg(row)}</td><td>{last}{why}</td></tr>"

    def _svg(self, row: _Row) -> str:
        points = [value if math.isfinite(value) else None for value in row.points]
        if not any(value is not None for value in points):
            return ""
        says = f"{self._path} on {row.who}: {_figure(row.points[0])} first, {_figure(row.points[-1])} last"
        return (
            f"<svg width='{_WIDTH}' height='{_HEIGHT}' viewBox='0 0 {_WIDTH} {_HEIGHT}' role='img' "
            f"style='vertical-align:middle' aria-label='{escape(says, quote=True)}'>"
            "<path fill='none' stroke='var(--mb-ok,#0072b2)' stroke-width='1.5' stroke-linejoin='round' "
            f"stroke-linecap='round' d='{self._line(points)}'/></svg>"
        )

    def _line(self, points: Sequence[float | None]) -> str:
        """The values from left to right; a gap where there is no number, and a dot between two gaps."""
        span = (self._high - self._low) or 1.0
        step = (_WIDTH - 4) / max(len(points) - 1, 1)
        words: list[str] = []
        is_down = False
        for index, value in enumerate(points):
            if value is not None:
                height = (value - self._low) / span if self._high > self._low else 0.5
                x, y = 2 + index * step, _HEIGHT - 3 - height * (_HEIGHT - 6)
                words.append(f"L{x:.1f} {y:.1f}" if is_down else f"M{x:.1f} {y:.1f}h0.1")
            is_down = value is not None
        return "".join(words)


class _Row(NamedTuple):
    """Ranks that have always said the same."""

    who: str
    points: list[float]
    reason: str


def _rows(series: Mapping[int, Series], reasons: Mapping[int, str]) -> list[_Row]:
    groups: dict[tuple[str, str], list[int]] = {}
    for rank, each in sorted(series.items()):
        groups.setdefault((repr(each.points()), reasons.get(rank, "")), []).append(rank)
    return [_Row(ranks_text(ranks), series[ranks[0]].points(), reason) for (_, reason), ranks in groups.items()]


def _figure(value: float) -> str:
    return f"{value:.5g}"
