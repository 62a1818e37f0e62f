"""Selectors read against a mesh as it is now: its axes, who of it lives, which hosts it is on."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from .selector import Selector, no_axis, parse_selector
from .terms import OTHER_AXES, BareWord, SelectorError


def selection(
    text: str, mesh: Any, *, also_dead: bool = False, meshes: Container[str] = frozenset()
) -> tuple[int, ...]:
    """The ranks of a `Mesh` or `BareMesh` that a selector means; dead ones if it names them, or with `also_dead`.

    `meshes` are the names that `-m` takes: one of them in place of a selector is told what it is.
    Raises `SelectorError`.
    """
    read = _read(text, mesh, meshes)
    # Without states in it only who is dead matters. Every cell asks; a look at each process costs 40 us a rank.
    states = mesh.states() if read.states else {} if also_dead else dict.fromkeys(mesh.roster.dead(), "dead")
    specs = mesh.roster.specs
    hosts = [specs[rank].host or "localhost" for rank in range(mesh.num_ranks)]
    return read.resolve(mesh.axes, states, hosts)


def _read(text: str, mesh: Any, meshes: Container[str]) -> Selector:
    try:
        return parse_selector(text)
    except BareWord as mistake:
        word = mistake.word
        if word in mesh.axes or word in OTHER_AXES:
            raise
        if word in meshes:
            raise SelectorError(f"'{word}' at column {mistake.column} is a mesh: it is chosen with -m {word}") from None
        raise no_axis(word, mistake.column, mesh.axes) from None
