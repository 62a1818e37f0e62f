"""Selectors read against a mesh as it is now: its axes, who of it lives, which hosts it is on."""

from __future__ import annotations

from typing import Any

from .selector import parse_selector


def selection(text: str, mesh: Any, *, also_dead: bool = False) -> tuple[int, ...]:
    """The ranks of a `Mesh` or `BareMesh` that a selector means; dead ones if it names them, or with `also_dead`.

    Raises `SelectorError`.
    """
    read = parse_selector(text)
    # Without states in it only who is dead matters. Every cell asks; a look at each process costs 40 us a rank.
    states = mesh.states() if read.states else {} if also_dead else dict.fromkeys(mesh.roster.dead(), "dead")
    specs = mesh.roster.specs
    hosts = [specs[rank].host or "localhost" for rank in range(mesh.num_ranks)]
    return read.resolve(mesh.axes, states, hosts)
