"""Ranks that stand at one line, unfinished, while the others of their cell are done: told in the cell, once.

Such a rank may hang in a lock, a queue, a file, or a group that no ledger of collectives knows of (one of torch's RPC),
or just have more to do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ...runtime.ranges import named, ranks_text
from ..run import Run
from .waited import Tell

AFTER = 10.0
"""Seconds at one line after which it is told."""


class UnfinishedWatch:
    """Looks after one run, as often as it is called.

    `others` gives ranks of which is told elsewhere: they are held at a prompt, have not begun, or wait in what the
    ledgers know.
    """

    def __init__(self, run: Run, others: Callable[[], Collection[int]], tell: Tell, *, is_bare: bool = False) -> None:
        self._run = run
        self._others = others
        self._tell = tell
        self._look = "`python -m meshbook.debug stacks`" if is_bare else "`%mesh stacks {}`"
        self._told: set[int] = set()

    def __call__(self, now: float) -> None:
        owing = self._run.owing
        if now - self._run.started < AFTER or len(owing) == len(self._run.ranks):
            return
        by_place: dict[str, list[int]] = {}
        for rank in set(owing) - self._told:
            place, seconds = self._run.sightings.still(rank)
            if seconds >= AFTER:
                by_place.setdefault(place, []).append(rank)
        others = self._others() if by_place else ()
        for place, found in by_place.items():
            if ranks := sorted(set(found).difference(others)):
                self._say(ranks, place, owing)

    def _say(self, ranks: Sequence[int], place: str, owing: Collection[int]) -> None:
        self._told.update(ranks)
        have = "has" if len(ranks) == 1 else "have"
        place += "," * ("," in place)  # a line, waiting in something, for so long
        what = f"{have} been at {place}" if place else f"{have} not answered"
        text = f"{what} for {AFTER:.0f} s; {self._done(owing)} done"
        self._tell(ranks, "◌", f"{text}: {self._look.format(ranks_text(ranks))} shows more")

    def _done(self, owing: Collection[int]) -> str:
        done = [rank for rank in self._run.ranks if rank not in owing]
        return f"{named(done)} {'is' if len(done) == 1 else 'are'}"
