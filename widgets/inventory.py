"""`%mesh who` as text, data and HTML."""

from __future__ import annotations

from typing import Any

from ..kernel.values.inventory import Inventory
from .sheet import SheetRow, sheet_html


class InventoryView:
    """An inventory of names, drawn."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory

    def data(self) -> dict[str, Any]:
        """See `Inventory.data`."""
        return self.inventory.data()

    def __repr__(self) -> str:
        return repr(self.inventory)

    def _repr_html_(self) -> str:
        rows = [
            SheetRow(line.cells, "" if line.is_agreed else "≠", "ranks disagree on it") for line in self.inventory.rows
        ]
        title = "" if rows else "no names yet: what cells assign is listed here"
        columns = ("name", "type", "size", "ranks")
        return sheet_html("names on the ranks", title, columns, rows, self.inventory.remarks)
