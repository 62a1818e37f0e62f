"""The dashboard as text and static HTML: the same facts, for terminals, saved notebooks and screen readers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from ..kernel.dashboard.facts import BAD, INTERRUPTED, RankFacts, counts
from ..kernel.dashboard.sentence import Sentence, span_text
from ..kernel.values.summary import readable
from ..runtime.ranks.place import coordinates
from .grid import grid_html
from .style import STYLE

GLYPHS = {
    "idle": "·",
    "busy": "▶",
    "waiting": "◌",
    "stopped": "‖",
    "failed": "✗",
    "dead": "✝",
    "debug": "?",
    "starting": "…",
}
MOST_ROWS = 64
"""Ranks that are listed one by one; of more, only those that are not as most are."""


class Twin:
    """One moment of a mesh. `notes` are lines for below, such as the last values of metrics."""

    def __init__(
        self,
        title: str,
        axes: Mapping[str, int],
        facts: Sequence[RankFacts],
        said: Sentence,
        now: float,
        notes: Sequence[str] = (),
    ) -> None:
        self._title = title
        self._axes = dict(axes)
        self._facts = facts
        self._said = said
        self._now = now
        self._notes = [note for note in notes if note]
        self._rows = [row_of(facts[rank], axes, now) for rank in _chosen(facts)]

    def bundle(self) -> dict[str, str]:
        """By mime type."""
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def __repr__(self) -> str:
        head = f"{self._title}   {counts_text(self._facts)}"
        lines = [f"{GLYPHS[state]} {'  '.join(filter(None, cells))}" for state, cells in self._rows]
        return "\n".join([head, str(self._said), *lines, *self._left_out(), *self._notes])

    def _repr_html_(self) -> str:
        columns = ("rank", "place", "state", "at", "cpu", "memory", "gpu", "progress", "pid")
        shown = [i for i in range(len(columns)) if any(cells[i] for _, cells in self._rows)]
        head = "".join(f'<th scope="col">{columns[i]}</th>' for i in shown)
        body = "".join(_html_row(state, [cells[i] for i in shown]) for state, cells in self._rows)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if body else ""
        tone = ' class="mb-head"' if self._said.tone == "bad" else ' class="mb-mark"' * (self._said.tone == "wait")
        said = f"<b{tone}>{escape(self._said.lead)}</b>{escape(': ' + self._said.rest if self._said.rest else '')}"
        foot = "".join(f'<div class="mb-foot">{escape(line)}</div>' for line in [*self._left_out(), *self._notes])
        return (
            f'{STYLE}<div class="meshbook" role="region" aria-label="dashboard of the mesh"><div>{said}</div>'
            f'<div style="margin:6px 0">{grid_html([each.state for each in self._facts], self._axes)}</div>'
            f'<div><b>{escape(self._title)}</b> &nbsp;<span class="mb-dim">{counts_text(self._facts)}</span></div>'
            f"{table}{foot}</div>"
        )

    def _left_out(self) -> list[str]:
        more = len(self._facts) - len(self._rows)
        which = f"and {more} more ranks" if self._rows else f"{more} ranks"
        return [f"{which}: `%mesh status` lists all"] if more else []


def counts_text(facts: Sequence[RankFacts]) -> str:
    """Example: `7 busy, 1 dead`."""
    return ", ".join(f"{count} {state}" for state, count in counts(facts).items())


def _chosen(facts: Sequence[RankFacts]) -> list[int]:
    if len(facts) <= MOST_ROWS:
        return list(range(len(facts)))
    states = counts(facts)
    usual = max(states, key=lambda state: states[state])
    return [each.rank for each in facts if each.state != usual][:MOST_ROWS]


def row_of(facts: RankFacts, axes: Mapping[str, int], now: float) -> tuple[str, list[str]]:
    """The state, then the cells of a rank's row."""
    where = ",".join(f"{axis}={i}" for axis, i in coordinates(facts.rank, axes).items())
    return facts.state, [
        f"rank {facts.rank}",
        "" if list(axes) == ["rank"] else where,
        state_text(facts, now),
        facts.place if facts.state in ("busy", "waiting", "debug") else "",
        cpu_text(facts),
        readable(facts.memory) if facts.memory else "",
        gpu_text(facts),
        progress_text(facts),
        f"pid {facts.pid}" if facts.pid else "",
    ]


def state_text(facts: RankFacts, now: float) -> str:
    """Example: `waiting in all_reduce for 42 s`, `dead, died of SIGKILL 4 s ago`."""
    text = span_text(now - (facts.waiting_since if facts.state == "waiting" else facts.since))
    if facts.state == "waiting":
        return f"waiting in {facts.waiting} for {text}"
    if facts.state == "dead":
        return f"dead, {facts.why} {text} ago"
    if facts.state == "stopped":
        return f"{facts.why} for {text}"
    if facts.state == "failed" and facts.why == INTERRUPTED:
        return f"interrupted {text} ago"
    return f"{facts.state} for {text}"


def cpu_text(facts: RankFacts) -> str:
    return "" if facts.cpu is None else f"{facts.cpu:.0%}"


def gpu_text(facts: RankFacts) -> str:
    """Example: `87%, 61.2 GB of 80 GB, 54 °C`."""
    gpu = facts.gpu
    if gpu is None:
        return ""
    return f"{gpu.busy:.0%}, {readable(gpu.used)} of {readable(gpu.total)}, {gpu.degrees} °C"


def progress_text(facts: RankFacts) -> str:
    """Example: `epoch 3/10, 2.5 it/s`."""
    if not facts.done and facts.total < 0:
        return ""
    total = f"/{facts.total}" if facts.total >= 0 else ""
    rate = f", {facts.rate:.3g} it/s" if facts.rate else ""
    return f"{facts.loop} {facts.done}{total}{rate}".strip()


def _html_row(state: str, cells: Sequence[str]) -> str:
    kind = ' class="mb-bad"' if state in BAD else ' class="mb-odd"' * (state == "waiting")
    first, *rest = cells
    return (
        f'<tr{kind}><th scope="row">{GLYPHS[state]} {escape(first)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        + "</tr>"
    )
