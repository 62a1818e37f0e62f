"""What lives where: the actors that this notebook has spawned. Static, as text and HTML."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from ..runtime.controller.births import Made
from ..runtime.controller.roster import Roster
from ..runtime.node import shape_of
from ..runtime.ranges import ranks_text
from .sheet import cell_html, table_of
from .style import STYLE

_COLUMNS = ("name", "class", "mesh", "axes", "ranks", "state")


class ActorList:
    """The actors on some meshes, as they were when it was asked for; those that run cells are left out."""

    def __init__(self, rosters: Iterable[Roster]) -> None:
        self._rows = [
            _facts(roster, made)
            for roster in rosters
            if not roster.is_stopped
            for made in list(roster.births.made.values())
            if made.class_name != "KernelActor"
        ]

    def data(self) -> list[dict[str, Any]]:
        """One dict for each spawn: name, class, mesh, axes, num_ranks, ranks, failed, dropped, dead (rank numbers)."""
        return self._rows

    def __repr__(self) -> str:
        if not self._rows:
            return 'no actors: spawn some with `m.spawn("name", Class)` on a mesh'
        rows = [_COLUMNS, *map(_cells, self._rows)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)

    def _repr_html_(self) -> str:
        if not self._rows:
            return f"<div>{escape(repr(self))}</div>"
        return (
            f'{STYLE}<div class="meshbook" role="region" aria-label="actors of this notebook">'
            f"{table_of(_COLUMNS, map(_html_row, self._rows))}</div>"
        )


def _facts(roster: Roster, made: Made) -> dict[str, Any]:
    dead = sorted(set(roster.dead()) & set(made.ranks))
    return {
        "name": made.name,
        "class": made.class_name.rpartition(".")[2],
        "mesh": roster.name,
        "axes": dict(shape_of(made.view).extent),
        "num_ranks": len(made.ranks),
        "ranks": ranks_text(made.ranks),
        "failed": sorted(made.failed.intersection(made.ranks) - set(dead)),
        "dropped": sorted(made.failed.difference(made.ranks)),
        "dead": dead,
    }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    axes = " × ".join(f"{axis}={size}" for axis, size in row["axes"].items())
    return row["name"], row["class"], row["mesh"], axes, row["ranks"], _state(row)


def _state(row: dict[str, Any]) -> str:
    """Example: `alive`, or `alive 0-2, dead 3`."""
    lost = len(row["failed"]) + len(row["dead"])
    if not lost and not row["dropped"]:
        return "● alive"
    words = [f"✗ failed {ranks_text(row['failed'])}"] if row["failed"] else []
    words += [f"✝ dead {ranks_text(row['dead'])}"] if row["dead"] else []
    words += [f"dropped {ranks_text(row['dropped'])}"] if row["dropped"] else []
    return ", ".join(words) + ("" if lost == row["num_ranks"] else ", others alive")


def _html_row(row: dict[str, Any]) -> str:
    name, *cells = _cells(row)
    kind = ' class="mb-bad"' if row["failed"] or row["dead"] or row["dropped"] else ""
    body = "".join(map(cell_html, cells))
    return f'<tr{kind}><th scope="row">{escape(name)}</th>{body}</tr>'
