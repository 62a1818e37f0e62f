"""A comparison of ranks as text, data and HTML."""

from __future__ import annotations

from typing import Any

from ..kernel.values.difference import Comparison
from .sheet import SheetRow, sheet_html


class DiffView:
    """A comparison, drawn; `comparison` has all of it."""

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison

    def data(self) -> dict[str, Any]:
        """See `Comparison.data`."""
        return self.comparison.data()

    def __repr__(self) -> str:
        return repr(self.comparison)

    def _repr_html_(self) -> str:
        found = self.comparison
        rows = [
            SheetRow([row.name, row.usual, row.who, row.what], "≠", "differs from the usual") for row in found.shown()
        ]
        columns = ("leaf", "usual", "ranks", "difference")
        return sheet_html("comparison of ranks", found.title, columns, rows, found.remarks)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}
