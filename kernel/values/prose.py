"""Results in Markdown or LaTeX: front-ends render them, but not within HTML, so they are a bundle of their own kind."""

from __future__ import annotations

from collections.abc import Sequence

from ..outcome import Value
from .mime import AS_PROSE, AS_THEY_ARE
from .rows import Row

_MOST = 1 << 20
"""Characters of more than a page: a table folds them away."""


def markdown_of(rows: Sequence[Row]) -> str | None:
    """The rows as Markdown, each under its ranks, where all their values are that or LaTeX; else None.

    Example:
        >>> value = Value("Latex", "<Latex object>", {"text/latex": "$x^2$"})
        >>> markdown_of([Row((0, 1), "dp=0-1", value, None, None, (0.2, 0.3), False)])
        '`ranks 0-1 · 0.20-0.30 s`\\n\\n$x^2$'
    """
    parts: list[str] = []
    for row in rows:
        source = _source(row.value)
        if source is None:
            return None
        about = " · ".join(filter(None, [f"{row.marker} {row.who}".strip(), row.time]))
        parts += [f"`{about}`", source]
    text = "\n\n".join(parts)
    return text if text and len(text) <= _MOST else None


def _source(value: Value | None) -> str | None:
    if value is None or not value.mime or any(mime in value.mime for mime in AS_THEY_ARE):
        return None
    return next((value.mime[mime] for mime in AS_PROSE if value.mime.get(mime)), None)
