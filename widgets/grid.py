"""A mesh drawn small: a square for each rank, in the mesh's own axes, coloured by state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from ..kernel.dashboard.facts import BAD
from ..kernel.waiting.report import states_text
from ..runtime.ranks.place import coordinates

_COLOURS = {
    "idle": "color-mix(in srgb,var(--mb-ok) 40%,transparent)",
    "busy": "var(--mb-ok)",
    "waiting": "var(--mb-bar)",
    "stopped": "var(--mb-bad)",
    "stuck": "var(--mb-bad)",
    "failed": "var(--mb-bad)",
    "dead": "var(--mb-dim)",
    "debug": "#cc79a7",
    "starting": "var(--mb-line)",
}
_MOST_CELLS = 1024
_MOST_ROWS = 64


def grid_html(states: Sequence[str], axes: Mapping[str, int]) -> str:
    """The states of all ranks as squares, the last axis running right; nothing for a mesh that is too large to draw.

    Example:
        >>> "rank 3: dp=1, tp=1, dead" in grid_html(["idle", "idle", "busy", "dead"], {"dp": 2, "tp": 2})
        True
    """
    if len(states) > _MOST_CELLS:
        return ""
    size = 11 if len(states) <= 64 else 6
    columns, room = list(axes.values())[-1], ""
    if len(axes) == 1 or len(states) > columns * _MOST_ROWS:  # rows that mean nothing are as long as the page is wide
        columns, room = "auto-fill", f"width:{min(len(states), 32) * (size + 2) - 2}px;max-width:100%;"
    layout = f"display:inline-grid;grid-template-columns:repeat({columns},{size}px);grid-auto-rows:{size}px;gap:2px"
    label = f"{len(states)} ranks: {states_text(states)}"
    cells = "".join(_square(rank, state, axes) for rank, state in enumerate(states))
    return f'<span role="img" aria-label="{escape(label)}" style="{room}{layout}">{cells}</span>'


def _square(rank: int, state: str, axes: Mapping[str, int]) -> str:
    where = ", ".join(f"{axis}={i}" for axis, i in coordinates(rank, axes).items())
    ring = ";outline:1px solid var(--mb-fg)" if state in (*BAD, "stuck") else ""
    style = f"background:{_COLOURS[state]};border-radius:2px{ring}"
    return f'<span title="rank {rank}: {where}, {state}" style="{style}"></span>'
