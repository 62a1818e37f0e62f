"""Meshes at a glance: the line under `%mesh up`, the list, the state of every rank. Static, as text and HTML."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import psutil

from ..kernel.mesh import Mesh
from ..kernel.values.rows import seconds_text
from ..kernel.values.summary import readable
from ..kernel.waiting.report import states_text
from ..runtime.controller.spares import spares_text
from ..runtime.numerals import condensed
from ..runtime.ranges import coords_text, named, ranks_text
from ..runtime.ranks.place import coordinates
from ..runtime.system.devices import split_device
from .grid import grid_html
from .sheet import cell_html, table_of
from .style import STYLE

_AT_ONCE = 16
"""So many ranks have a line each."""

_GLYPHS = {"idle": "●", "busy": "▶", "failed": "✗", "stuck": "‖", "debug": "◆", "dead": "✝", "starting": "◌"}


def banner(mesh: Mesh, device: str, backend: str, seconds: float) -> dict[str, str]:
    """What `%mesh up` shows: one line, with the mesh drawn small in front of it."""
    count = f"{mesh.num_ranks} rank{'s' if mesh.num_ranks > 1 else ''}"
    kind, shared = split_device(device)
    place = f"{shared} shared GPU{'s' if shared > 1 else ''}" if shared else kind
    words = [f"{axes_text(mesh)}", f"{count} on {place}", *group_words(device, backend)]
    words += [f"in {mesh.python}"] if mesh.python else []
    num_spares = mesh.roster.crew.num_spares[0] if mesh.roster.num_spares else 0
    words += [f"{num_spares} spare{'s' * (num_spares > 1)}"] if num_spares else []
    words.append(_news(mesh) or f"ready in {seconds_text(seconds, seconds)}")
    text = f"mesh {mesh.name}   {' · '.join(words)}"
    told = f'<b>{escape(mesh.name)}</b> &nbsp;<span class="mb-dim">{escape(" · ".join(words))}</span>'
    line = f"{grid_html(list(mesh.states().values()), mesh.axes)}<span>{told}</span>"
    style = "display:flex;flex-wrap:wrap;align-items:center;gap:2px 10px"
    return {"text/plain": text, "text/html": f'{STYLE}<div class="meshbook" style="{style}">{line}</div>'}


def _news(mesh: Mesh) -> str:
    """What there is to say of the ranks' states; empty while all are idle."""
    if mesh.is_down:
        return "down"
    states = mesh.states()
    if set(states.values()) == {"idle"}:
        return ""
    by_state = {state: [rank for rank in states if states[rank] == state] for state in dict.fromkeys(states.values())}
    calm = [f"{len(by_state[state])} {state}" for state in ("busy", "idle") if state in by_state]
    bad = [f"{named(ranks)} {state}" for state, ranks in by_state.items() if state not in ("busy", "idle")]
    return ", ".join(bad + calm)


def group_words(device: str, backend: str) -> list[str]:
    if backend == "none":
        return ["no process group"]
    return [("nccl" if device.startswith("cuda") else "gloo") if backend == "auto" else backend]


def axes_text(mesh: Mesh) -> str:
    """Example: `dp=2 × tp=4`."""
    return " × ".join(f"{axis}={size}" for axis, size in mesh.axes.items())


class Status:
    """The state of some ranks of a mesh, as they were when it was asked for."""

    def __init__(self, mesh: Mesh, ranks: Sequence[int]) -> None:
        spares = "" if mesh.is_down else spares_text(mesh.roster)
        words = [axes_text(mesh), *([spares] if spares else []), *(["down"] if mesh.is_down else [])]
        self._title = f"mesh {mesh.name}   {' · '.join(words)}"
        states = mesh.states()  # once: each time it looks at all processes
        self._grid = grid_html(list(states.values()), mesh.axes)
        busy = [rank for rank in ranks if mesh.roster.states[rank].name == "busy"]
        where = mesh.where(busy) if busy and not mesh.is_down else {}
        ended = [rank for rank in ranks if states[rank] in ("failed", "idle")] if not mesh.is_down else []
        held = mesh.held_by_errors(ended) if ended else {}
        self._rows = [_facts(mesh, rank, states[rank], where.get(rank, ""), held.get(rank, 0)) for rank in ranks]

    def data(self) -> list[dict[str, Any]]:
        """One dict a rank: rank, coord, state, pid, seconds, memory (None if unknown) and held in bytes, at, ended."""
        return self._rows

    def __repr__(self) -> str:
        lines = [f"{_GLYPHS[line.state]} {line.who}  {line.text}" for line in self._lines(_AT_ONCE)]
        counts = states_text(row["state"] for row in self._rows)
        return "\n".join([f"{self._title}   {counts}", *lines])

    def _repr_html_(self) -> str:
        lines, all_lines = self._lines(_AT_ONCE), self._lines(len(self._rows))
        table = _table(lines)
        if len(lines) < len(all_lines):
            table += f"<details><summary>all {len(all_lines):,} ranks</summary>{_table(all_lines)}</details>"
        return (
            f'{STYLE}<div class="meshbook" role="region" aria-label="status of the mesh">{self._grid} '
            f"<b>{escape(self._title)}</b>{table}</div>"
        )

    def _lines(self, most: int) -> list[_Line]:
        """A line a rank; of more ranks than `most`, those that differ in their numbers alone are one."""
        cells = [_cells(row) for row in self._rows]
        if len(cells) <= most:
            return [_Line([row], cell) for row, cell in zip(self._rows, cells, strict=True)]
        return [
            _Line([self._rows[index] for index in group], told) for group, told in condensed(cells, keeps_odd=False)
        ]


@dataclass(frozen=True, slots=True)
class _Line:
    """Ranks in the same state, and what is said of them."""

    rows: list[dict[str, Any]]
    cells: Sequence[str]

    @property
    def state(self) -> str:
        return self.rows[0]["state"]

    @property
    def ranks(self) -> list[int]:
        return [row["rank"] for row in self.rows]

    @property
    def place(self) -> str:
        """Where they are on the axes; empty where that is their rank."""
        [axes, *_] = points = [row["coord"] for row in self.rows]
        return coords_text(points, list(axes)) if list(axes) != ["rank"] else ""

    @property
    def who(self) -> str:
        return named(self.ranks) + (f" ({self.place})" if self.place else "")

    @property
    def text(self) -> str:
        state, since, pid, memory, *others = self.cells
        return "  ".join(filter(None, [f"{state} for {since}", f"pid {pid}" if pid else "", memory, *others]))


def _table(lines: Sequence[_Line]) -> str:
    return table_of(("rank", "place", "state", "for", "pid", "memory", "at"), map(_html_row, lines))


def _facts(mesh: Mesh, rank: int, name: str, at: str, held: int) -> dict[str, Any]:
    state = mesh.roster.states[rank]
    return {
        "rank": rank,
        "coord": coordinates(rank, mesh.axes),
        "state": name,
        "pid": state.pid or None,
        "seconds": time.monotonic() - (state.since if state.halt is None else state.halt.since),
        "memory": _memory(state.pid) if state.exit is None else None,
        "at": at or (str(state.halt) if state.halt is not None else ""),
        "ended": str(state.exit) if state.exit is not None else "",
        "held": held,
    }


def _memory(pid: int) -> int | None:
    try:
        return psutil.Process(pid).memory_info().rss if pid else None
    except psutil.Error:
        return None


def _cells(row: dict[str, Any]) -> list[str]:
    """State, since when, pid, memory, where it is, how it ended, what it holds; empty where there is nothing to say."""
    return [
        row["state"],
        seconds_text(row["seconds"], row["seconds"]),
        str(row["pid"] or ""),
        readable(row["memory"]) if row["memory"] else "",
        row["at"],
        row["ended"],
        _held_text(row),
    ]


def _held_text(row: dict[str, Any]) -> str:
    """Of little nothing is said."""
    return f"holds {readable(row['held'])} for post-mortem" if row["held"] >= 1 << 20 else ""


def _html_row(line: _Line) -> str:
    _, since, pid, memory, *others = line.cells
    cells = [line.place, f"{_GLYPHS[line.state]} {line.state}", since, pid, memory, next(filter(None, others), "")]
    kind = ' class="mb-bad"' if line.state in ("dead", "failed", "stuck") else ""
    body = "".join(map(cell_html, cells))
    return f'<tr{kind}><th scope="row">{ranks_text(line.ranks)}</th>{body}</tr>'


class MeshList:
    """The meshes of a notebook."""

    def __init__(self, meshes: Sequence[Mesh], current: str | None, slice: str = "") -> None:
        """`slice` is the selector of the current one, if a slice of it is current."""
        self._rows = [_mesh_facts(mesh, mesh.name == current, slice) for mesh in meshes]

    def data(self) -> list[dict[str, Any]]:
        """One dict a mesh: name, axes, num_ranks, states, is_current, slice, is_down."""
        return self._rows

    def __repr__(self) -> str:
        if not self._rows:
            return "no mesh: bring one up with `%mesh up dp=2`"
        return "\n".join(_mesh_text(row) for row in self._rows)


def _mesh_facts(mesh: Mesh, is_current: bool, slice: str) -> dict[str, Any]:
    states = mesh.states()
    return {
        "name": mesh.name,
        "axes": dict(mesh.axes),
        "num_ranks": mesh.num_ranks,
        "states": {
            state: ranks_text(r for r, s in states.items() if s == state) for state in dict.fromkeys(states.values())
        },
        "is_current": is_current,
        "slice": slice if is_current else "",
        "is_down": mesh.is_down,
    }


def _mesh_text(row: dict[str, Any]) -> str:
    axes = " × ".join(f"{axis}={size}" for axis, size in row["axes"].items())
    states = "down" if row["is_down"] else ", ".join(f"{state} {ranks}" for state, ranks in row["states"].items())
    name = f"{row['name']}[{row['slice']}]" if row["slice"] else row["name"]
    return f"{'*' if row['is_current'] else ' '} {name}   {axes} · {row['num_ranks']} ranks · {states}"
