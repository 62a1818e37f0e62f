"""Ways into a rank, the best first: stop it where it is, else look at it while it runs, else show its stack."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .stoppable import Stoppable

_ENTRY = 0.3
"""Seconds in which a rank stops, if it does. A gloo collective lets signals in every 50 ms."""

_MOMENT = 0.01


class Rung(Enum):
    """How far one gets with a rank, and what is said of it."""

    LIVE = "stopped"
    INSPECTOR = "no stop, as C code runs there: looked at while it runs on (`q` leaves, `refresh` looks again)"
    STACK = "no answer, as C code holds the interpreter there, or the process is stopped; the stack:"
    IDLE = "nothing runs there"
    DEAD = "dead (`%mesh restart @dead` brings back what is dead)"

    @property
    def has_prompt(self) -> bool:
        """Can one talk with it then?"""
        return self in (Rung.LIVE, Rung.INSPECTOR)


def enter(mesh: Stoppable, ranks: Sequence[int]) -> dict[Rung, list[int]]:
    """Stop these ranks, or get as near as one can; which came how far."""
    alive = set(mesh.roster.alive())
    found: dict[Rung, list[int]] = {}
    for rank in ranks:
        rung = _rung_of(mesh, rank) if rank in alive else Rung.DEAD
        found.setdefault(rung, []).append(rank)
    return found


def _rung_of(mesh: Stoppable, rank: int) -> Rung:
    desk = mesh.desk
    if desk.stop_of(rank) is not None:
        return Rung.LIVE
    answer = desk.attach(rank)
    while answer == "stopped" and not desk.wait(lambda: desk.stop_of(rank) is not None, _MOMENT):
        answer = desk.attach(rank)  # it has not read yet that it may go on
    if answer is None or answer == "late":
        return Rung.STACK
    if answer == "idle":
        return Rung.IDLE
    if desk.wait(lambda: desk.stop_of(rank) is not None, _ENTRY):
        return Rung.LIVE
    if desk.inspect(rank) and desk.wait(lambda: desk.stop_of(rank) is not None, _ENTRY):
        return Rung.INSPECTOR
    return Rung.STACK
