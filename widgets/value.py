"""The value of a row as HTML: text, or a `<details>` with its figure, its numbers at a glance, its error's lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from typing import Final

from ..kernel.failures.story import line_text, place_text, shortened_frames, without_escapes
from ..kernel.outcome import Failure, Frame, Value
from ..kernel.values.rows import Row, clipped
from .heat import heat_html
from .picture import PICTURES, picture_html

_TEXT_BUDGET: Final = 120_000
"""Characters of text that all rows have together; a notebook with large outputs opens slowly."""
_RICH_BUDGET: Final = 4_000_000
_HEAT_BUDGET: Final = 400_000
_MAX_OPEN: Final = 3
"""So many rich values are shown at once; with more, one opens those that one wants."""
_LEAST_ROOM: Final = 80
_WIDE: Final = 80


class Values:
    """Draws the values of one table, which share a budget: of many rows each has little room."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._room = max(_LEAST_ROOM, _TEXT_BUDGET // max(len(rows), 1))
        self._rich_left, self._heat_left = _RICH_BUDGET, _HEAT_BUDGET
        self._side = 64 if len(rows) <= 64 else 16
        self._are_open = sum(has_details(row) for row in rows) <= _MAX_OPEN

    def html(self, row: Row) -> str:
        """The value of a row, its error, or why there is neither."""
        note = f' <span class="mb-dim">{escape(row.note)}</span>' if row.note else ""
        return (self._details(row) or self._text(row)) + note

    def page(self, row: Row) -> str:
        """The same with nothing folded away."""
        error = f"<pre>{plain(row.text, self._room)}</pre>" if row.failure is not None else ""
        return error + (self._inside(row) or self._text(row))

    def _details(self, row: Row) -> str | None:
        inside = self._inside(row)
        if inside is None:
            return None
        first = without_escapes(row.text).strip().partition("\n")[0]
        title = plain(row.gist, _WIDE * 2) if row.gist and not _is_rich(row) else plain(first, _WIDE)
        is_open = " open" if self._are_open and not row.is_failed else ""
        return f"<details{is_open}><summary>{title}</summary>{inside}</details>"

    def _inside(self, row: Row) -> str | None:
        if row.failure is not None:
            return self._failure(row.failure)
        rich = rich_html(row.value)
        if rich is not None and len(rich) <= self._rich_left:
            self._rich_left -= len(rich)
            return rich
        return self._numbers(row) if row.gist else None

    def _failure(self, failure: Failure) -> str | None:
        users = shortened_frames(failure)
        if users:
            lines = "\n".join(line for frame in users for line in _frame(frame))
            return f"<pre>{lines}</pre>"
        return f"<pre>{plain(failure.traceback, self._room)}</pre>" if failure.traceback else None

    def _numbers(self, row: Row) -> str:
        gist = row.value.gist if row.value is not None else None
        picture = heat_html(gist.heat, gist.num_nans, self._side) if gist is not None and gist.heat is not None else ""
        if len(picture) > self._heat_left:
            picture = ""
        self._heat_left -= len(picture)
        return f'<div class="mb-side">{picture}<pre tabindex="0">{plain(row.text, self._room)}</pre></div>'

    def _text(self, row: Row) -> str:
        text = plain(row.text, self._room)
        if not text:
            return '<span class="mb-dim">done</span>'
        return f"<pre>{text}</pre>" if "\n" in text else f"<code>{text}</code>"


def _frame(frame: Frame | int) -> list[str]:
    """A line of the user's own that an error went through; a number stands for so many that are left out."""
    if isinstance(frame, int):
        return [f'<span class="mb-dim">   … {frame} more frames</span>']
    place, hot = f"   {escape(place_text(frame))}", f" → {line_text(frame, 3)}"
    return [place, f'<span class="mb-hot">{escape(hot)}</span>'] if frame.source else [place]


def has_details(row: Row) -> bool:
    """Is there more to show than a line?"""
    return _is_rich(row) or bool(row.gist)


def _is_rich(row: Row) -> bool:
    return row.value is not None and any(mime in _RICH for mime in row.value.mime)


def rich_html(value: Value | None) -> str | None:
    """The richest form of a value that a page can show without help; of Markdown and LaTeX the source."""
    mimes = value.mime if value is not None else {}
    mime = next((mime for mime in _RICH if mime in mimes), None)
    return _RICH[mime](mimes[mime]) if mime is not None else None


def plain(text: str, limit: int) -> str:
    """At most `limit` characters of what a rank has printed, escaped."""
    return escape(clipped(without_escapes(text), limit))


_RICH: Final[dict[str, Callable[[str], str]]] = {
    "text/html": lambda source: f"<div>{source}</div>",
    **{form: partial(picture_html, form) for form in PICTURES},
    "text/markdown": lambda source: f"<pre>{escape(source)}</pre>",
    "text/latex": lambda source: f"<pre>{escape(source)}</pre>",
}
