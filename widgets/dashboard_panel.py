"""What the dashboard's side panel tells of the selected ranks. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ..kernel.dashboard.facts import RankFacts
from ..kernel.values.summary import readable
from ..runtime.ranges import ranks_text
from ..runtime.ranks.place import coordinates
from .dashboard_twin import counts_text, cpu_text, gpu_text, progress_text, state_text

_LONGEST_LINE = 200

_NOWHERE = "–"
"""Keeps its row: where rows go, the buttons below them move away under the pointer, and another one is clicked."""


def panel(facts: Sequence[RankFacts], axes: Mapping[str, int], now: float, last_line: str = "") -> dict[str, Any]:
    """A title, a line below it, and rows of a term and its description.

    Example:
        >>> shown = panel([RankFacts(1, "busy", 0.0, "cell 7 line 9", pid=4711, cpu=0.99)], {"dp": 2}, now=3.0)
        >>> shown["title"], shown["rows"][0], shown["rows"][1]
        ('rank 1', ('state', 'busy for 3 s'), ('at', 'cell 7 line 9'))
    """
    if len(facts) == 1:
        return _of_one(facts[0], axes, now, last_line)
    cpus = [each.cpu for each in facts if each.cpu is not None]
    sizes = [each.memory for each in facts if each.memory is not None]
    rows = [("state", counts_text(facts))]
    places = list(dict.fromkeys(each.place for each in facts if each.place))
    more = f" and {len(places) - 3} more" if len(places) > 3 else ""
    rows += [("at", "; ".join(places[:3]) + more or _NOWHERE)]
    rows += [("cpu", f"{min(cpus):.0%} to {max(cpus):.0%}, median {statistics.median(cpus):.0%}")] if cpus else []
    rows += [("memory", f"{readable(min(sizes))} to {readable(max(sizes))}")] if sizes else []
    title = f"{len(facts)} ranks"
    return {"title": title, "sub": ranks_text([each.rank for each in facts]), "rows": _told(rows)}


def _of_one(facts: RankFacts, axes: Mapping[str, int], now: float, last_line: str) -> dict[str, Any]:
    where = ", ".join(f"{axis}={i}" for axis, i in coordinates(facts.rank, axes).items())
    rows = [
        ("state", state_text(facts, now)),
        ("at", (facts.place if facts.state in ("busy", "waiting", "debug") else "") or _NOWHERE),
        ("cpu / mem", " · ".join(filter(None, [cpu_text(facts), readable(facts.memory) if facts.memory else ""]))),
        ("gpu", gpu_text(facts)),
        ("progress", progress_text(facts)),
        ("last line", last_line.strip()[-_LONGEST_LINE:]),
        ("pid", str(facts.pid) if facts.pid else ""),
        ("host", facts.host),
    ]
    return {"title": f"rank {facts.rank}", "sub": "" if list(axes) == ["rank"] else where, "rows": _told(rows)}


def _told(rows: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [row for row in rows if row[1]]
