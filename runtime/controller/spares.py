"""Spare ranks: processes that have done their imports and wait, to take the place of a rank that dies at once.

Worth most where ranks are executed afresh, on accelerators: there a start costs an `import torch`.
"""

from __future__ import annotations

from .roster import Roster


def keep_spares(roster: Roster, count: int | None = None) -> None:
    """Have so many spares waiting (None: as many as were asked for last), without waiting for them.

    Raises `SpawnError` where there is no room for them.
    """
    if count is not None:
        roster.num_spares = count
    if roster.num_spares and not roster.is_stopped:
        roster.crew.keep_spares(roster.num_spares, next(iter(roster.specs.values())))


def spares_text(roster: Roster) -> str:
    """Example: `1 spare`, `2 spares, 1 of them warm`; empty where none was asked for."""
    if not roster.num_spares:
        return ""
    num, num_warm = roster.crew.num_spares
    text = f"{num} spare{'s' * (num != 1)}"
    return text if num == num_warm else f"{text}, {num_warm} of them warm"
