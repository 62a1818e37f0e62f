"""`r.table()`: a result to walk through. Sort, filter, a grid of cells in the mesh's own axes, a value's page when it
is asked for. Its static twin is the table that needs no kernel.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

from IPython.core.getipython import get_ipython

from ..kernel.failures.story import without_escapes
from ..kernel.values.results import MeshResult
from ..kernel.values.rows import Row, clipped
from .base import STATIC, LiveWidget, script
from .heat import NAN_COLOUR, cividis
from .stage import NotebookStage
from .style import RESULT_CSS
from .value import Values, has_details

_WIDE = 160
_PALETTE = [f"rgb{cividis(level / 31)}" for level in range(32)]


class ResultTable(LiveWidget):
    """The interactive table of a result.

    Rows travel once, a group of equal ranks as one; the page of a value travels when it is opened.
    """

    _esm = script("home.js", "table.js")
    _css = RESULT_CSS + (STATIC / "table.css").read_text("utf-8")

    def __init__(self, result: MeshResult) -> None:
        self.result = result
        super().__init__()

    def twin(self) -> dict[str, str]:
        return self.result.by_rank()._repr_mimebundle_()  # pyright: ignore[reportPrivateUsage] - what IPython calls

    def on_message(self, message: Mapping[str, Any], buffers: Sequence[memoryview]) -> None:
        match message.get("kind"):
            case "hello":
                self.tell("rows", columns_of(self.result), **facts_of(self.result))
            case "open":
                rank = message.get("rank")
                if rank in self.result.ranks:
                    self.tell("page", id=message.get("id"), rank=rank, html=self._page(rank))
            case "close":
                self.retire()
            case _:
                pass  # of a script that is newer than this kernel

    def _page(self, rank: int) -> str:
        (row,) = self.result.sel(rank=rank).rows()
        return Values([row]).page(row)

    def __repr__(self) -> str:
        return self.twin()["text/plain"]

    def _ipython_display_(self) -> None:
        self.show(NotebookStage(get_ipython()))


def facts_of(result: MeshResult) -> dict[str, Any]:
    """What the script draws from, but for numbers: a list entry for each group of equal ranks."""
    return {
        "axes": list(result.axes.items()),
        "ranks": list(result.ranks),
        "groups": [_group(row) for row in result.rows()],
        "palette": _PALETTE,
        "nan": f"rgb{NAN_COLOUR}",
    }


def columns_of(result: MeshResult) -> list[bytes]:
    """For each rank its group (u4), its number and its seconds (f8, nan where it has none), in the order of ranks."""
    groups = {rank: number for number, row in enumerate(result.rows()) for rank in row.ranks}
    numbers = {
        rank: number
        for row in result.rows()
        if len(row.numbers) == len(row.ranks)
        for rank, number in zip(row.ranks, row.numbers, strict=True)
    }
    seconds = result.seconds
    return [
        array("I", [groups[rank] for rank in result.ranks]).tobytes(),
        array("d", [numbers.get(rank, nan) for rank in result.ranks]).tobytes(),
        array("d", [seconds.get(rank, nan) for rank in result.ranks]).tobytes(),
    ]


def _group(row: Row) -> dict[str, Any]:
    first = without_escapes(row.text).strip().partition("\n")[0]
    return {
        "text": clipped(row.gist or first or "done", _WIDE),
        "facts": row.facts,
        "state": row.state,
        "is_odd": row.is_odd,
        "is_number": bool(row.numbers),
        "has_more": has_details(row) or "\n" in row.text or len(first) > _WIDE or row.failure is not None,
    }
