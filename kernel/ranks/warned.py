"""Warnings on a rank name the cell that they come from, as tracebacks do, and not the file that stands for it."""

from __future__ import annotations

import linecache
import warnings

from ..sources.source import name_of


def name_cells() -> None:
    """From here on, in this process; to be called once."""
    plain = warnings.formatwarning

    def formatted(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        cell = name_of(filename)
        if cell is None:
            return plain(message, category, filename, lineno, line)
        text = (linecache.getline(filename, lineno) if line is None else line).strip()
        return f"{cell}, line {lineno}: {category.__name__}: {message}\n" + (f"  {text}\n" if text else "")

    warnings.formatwarning = formatted
