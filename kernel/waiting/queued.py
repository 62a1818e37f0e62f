"""Ranks that have not begun a cell, as one before it still runs there: told as it waits, taken back where it stops."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...runtime.ranges import named
from ..run import Run
from .waited import Tell, Waited

TOLD_AFTER = 1.0
"""Seconds after which it is told."""

_TO_BE_SURE = 0.2
"""Seconds after which who is not behind has begun: where the cell before has failed, the answer is that it does not."""


def queued(run: Run, names: Mapping[int, str]) -> dict[int, str]:
    """The ranks that have not begun this run, each with the name of the cell that they work on; `names` are by call."""
    found: dict[int, str] = {}
    for rank in run.owing:
        state = run.roster.states.get(rank)
        before = [call for call in list(state.main_calls) if call < run.call] if state is not None else []
        if before:
            found[rank] = names.get(min(before), "a call before it")
    return found


def by_cell(queued: Mapping[int, str]) -> dict[str, list[int]]:
    """The ranks that work on each cell.

    Example:
        >>> by_cell({1: "cell 4", 3: "cell 4"})
        {'cell 4': [1, 3]}
    """
    ranks: dict[str, list[int]] = {}
    for rank, name in sorted(queued.items()):
        ranks.setdefault(name, []).append(rank)
    return ranks


def taken_back_text(queued: Mapping[int, str]) -> str:
    """What a stop came to for ranks that had not begun, and what ends what they do.

    Example:
        >>> taken_back_text({3: "cell 2"})
        'taken back from rank 3, which still works on cell 2: `%mesh interrupt 3` ends that'
    """
    parts: list[str] = []
    for name, ranks in by_cell(queued).items():
        which = f"which still {'work' if ranks[1:] else 'works'} on {name}"
        selector = named(ranks).partition(" ")[2]
        parts.append(f"taken back from {named(ranks)}, {which}: `%mesh interrupt {selector}` ends that")
    return "; ".join(parts)


class QueueWatch:
    """Tells once of each rank that has not begun, and when it has. Called at each look at the run, with the time.

    `queued` gives the ranks that have not begun `what`, each with the name of what it works on.
    """

    def __init__(
        self,
        run: Waited,
        queued: Callable[[], Mapping[int, str]],
        tell: Tell,
        what: str = "this cell",
        advice: str = "stop takes this one back",
    ) -> None:
        self._run = run
        self._queued = queued
        self._tell = tell
        self._what = what
        self._advice = advice
        self._told: set[int] = set()
        self._free: dict[int, float] = {}
        """Those of them with no cell before it any more, and since when."""

    def __call__(self, now: float) -> None:
        if now - self._run.started < TOLD_AFTER:
            return
        behind = self._queued()
        free = sorted(self._told.intersection(self._run.owing).difference(behind))
        self._free = {rank: self._free.get(rank, now) for rank in free}
        if begun := [rank for rank, since in self._free.items() if now - since >= _TO_BE_SURE]:
            self._told.difference_update(begun)
            after = self._free[begun[0]] - self._run.started
            self._tell(begun, "▶", f"{'have' if begun[1:] else 'has'} begun it after {after:.0f} s")
        new = {rank: name for rank, name in behind.items() if rank not in self._told}
        self._told.update(new)
        for name, ranks in by_cell(new).items():
            has, works = ("have", "work") if ranks[1:] else ("has", "works")
            self._tell(ranks, "◌", f"{has} not begun {self._what}, and still {works} on {name}: {self._advice}")
