"""Ranks that wait for one whose part of the cell has ended, with an error: more time is of no use to them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from ...runtime.controller.regroup import ask
from .hangs import A_RANK
from .ledger import Finding

if TYPE_CHECKING:
    from ..mesh import Mesh
    from ..run import Run

FIRST, EVERY = 0.3, 0.3
"""Seconds after a failure until it is looked who waits for whom, and between two such looks."""

LEAST = 0.2
"""Seconds that a collective must have been open: what the failed rank has sent before may just be on its way."""

_TIMEOUT = 0.2


def all_in_vain(findings: Sequence[Finding], owing: Collection[int], ended: Collection[int]) -> bool:
    """Do all of `owing` wait in collectives for ranks that have ended, or behind others that do?

    Example:
        >>> first = Finding("rank 1 waits in recv from rank 2", odd=(2,), waiting=(1,), seconds=0.5)
        >>> second = Finding("rank 0 waits in send to rank 1", odd=(1,), waiting=(0,), seconds=0.5)
        >>> all_in_vain([second, first], owing=[0, 1], ended=[2]), all_in_vain([second], owing=[0, 1], ended=[2])
        (True, False)
    """
    gone = set(ended)
    while found := {rank for each in findings if _is_stuck(each, gone) for rank in each.waiting} - gone:
        gone |= found
    return bool(owing) and gone.issuperset(owing)


def _is_stuck(finding: Finding, gone: Collection[int]) -> bool:
    return finding.seconds >= LEAST and not set(finding.odd).isdisjoint(gone)


class VainWatch:
    """Looks at the ranks that a failed run still waits for, at a calm pace.

    `look` gives what their ledgers say, or nothing if one of them has something else to do than to wait: a collective
    may be open behind who saves a checkpoint. `dead` gives the dead ranks of the mesh.
    """

    def __init__(
        self, run: Run, look: Callable[[Sequence[int]], Sequence[Finding]], dead: Callable[[], Collection[int]]
    ) -> None:
        self._run = run
        self._look = look
        self._dead = dead
        self._next = 0.0

    @classmethod
    def of(cls, mesh: Mesh, run: Run) -> VainWatch:
        """The watch of a run of a mesh."""

        def look(ranks: Sequence[int]) -> Sequence[Finding]:
            held_up = ask(mesh.roster, ranks, "is_held_up")
            held_up.wait(_TIMEOUT)
            answers = dict(held_up.answers)
            return mesh.ledger(ranks, _TIMEOUT, depth=64).findings if all(map(answers.get, ranks)) else ()

        return cls(run, look, mesh.roster.dead)

    def sees(self, now: float, failing_for: float) -> bool:
        """Was it found at `now` that all of them wait in vain, so many seconds after the first failure?"""
        owing = self._run.owing
        if failing_for < FIRST or now < self._next or not owing:
            return False
        self._next = now + EVERY + A_RANK * len(owing)
        return all_in_vain(self._look(owing), owing, {*self._run.ranks, *self._dead()} - {*owing})
