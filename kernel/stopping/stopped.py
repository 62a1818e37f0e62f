"""Ranks that the user stopped while others of their cell go on: from the dashboard, or by `%mesh interrupt`.

They did not fail, so the others are given no grace that ends: who does not wait for them finishes. Who waits for one of
them in a collective would wait for ever, and is freed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from ...runtime.ranges import named
from ..outcome import Outcome
from ..run import Progress, Run
from ..waiting.ledger import Finding
from .heard import listen

if TYPE_CHECKING:
    from ..mesh import Mesh

PAUSE = 0.3
"""Seconds between two looks at who waits for a rank that was stopped."""

_outcome_of = msgspec.msgpack.Decoder(Outcome).decode


def stop(runs: Iterable[Run], ranks: Collection[int], how: str) -> None:
    """Note that the user is about to stop these ranks in the runs that they work on; `how` is told.

    Example: `stop(mesh.running(), [2], "interrupted from the dashboard")`.
    """
    for run in runs:
        run.progress.stopped.update(dict.fromkeys(set(ranks) & set(run.owing), how))


def stopped(progress: Progress) -> dict[int, str]:
    """The ranks whose cell ended for no fault of its own, each with what to tell of it: not those that ended otherwise.

    Example:
        >>> from meshbook.kernel.outcome import Failure
        >>> pressed = Outcome(failure=Failure("KeyboardInterrupt", "", (), ""))
        >>> failed = Outcome(failure=Failure("ValueError", "", (), ""))
        >>> outcomes = {1: msgspec.msgpack.encode(pressed), 2: msgspec.msgpack.encode(failed)}
        >>> stopped(Progress(outcomes, failed=[1, 2], stopped={1: "interrupted", 2: "interrupted", 3: "interrupted"}))
        {1: 'interrupted'}
    """
    return {rank: how for rank, how in progress.stopped.items() if _ended_so(progress, rank)}


def _ended_so(progress: Progress, rank: int) -> bool:
    if rank not in progress.failed:
        return False
    failure = _outcome_of(progress.outcomes[rank]).failure
    # One whose collective was broken off says so by an error of torch's.
    return rank in progress.freed or (failure is not None and failure.type_name == "KeyboardInterrupt")


class StopWatch:
    """Tells of the ranks of one run that the user stopped, and frees those that wait for them.

    `look` gives what the ledgers of the mesh say of some ranks, `free` interrupts ranks, or with `True` breaks off
    their collectives.
    """

    def __init__(
        self,
        run: Run,
        look: Callable[[Sequence[int]], Sequence[Finding]],
        free: Callable[[Sequence[int], bool], object],
        tell: Callable[[Sequence[int], str, str], object],
    ) -> None:
        self._run = run
        self._look = look
        self._free = free
        self._tell = tell
        self._told: set[int] = set()
        self._next = 0.0

    def __call__(self, now: float) -> None:
        """Do what is to be done at `now`."""
        progress = self._run.progress
        if not progress.stopped:
            return
        owing = self._run.owing
        ended = [rank for rank in sorted(stopped(progress)) if rank not in progress.freed]
        self._tell_of([rank for rank in ended if rank not in self._told], owing)
        if ended and owing and now >= self._next:
            self._next = now + PAUSE
            self._free_from(ended, owing)

    def _tell_of(self, ranks: Sequence[int], owing: Sequence[int]) -> None:
        self._told.update(ranks)
        owing = [rank for rank in owing if rank not in self._run.progress.stopped]  # these are about to end, too
        if ranks and owing:
            others = f"; {named(owing)} {'goes' if len(owing) == 1 else 'go'} on"
            self._tell(ranks, "◌", f"{self._run.progress.stopped[ranks[0]]}{others}")

    def _free_from(self, ended: Sequence[int], owing: Sequence[int]) -> None:
        """Interrupt those that wait for ranks whose cell has ended; of those that do not react, the collectives."""
        freed = self._run.progress.freed
        if deaf := sorted(freed & set(owing)):
            self._free(deaf, True)
        for finding in self._look(owing):
            missed = sorted(set(finding.odd) & set(ended))
            waiting = sorted(set(finding.waiting) & set(owing) - freed)
            if missed and waiting:
                freed.update(waiting)
                how = f"waited for {named(missed)}, which {'was' if len(missed) == 1 else 'were'} interrupted"
                self._run.progress.stopped.update(dict.fromkeys(waiting, how))
                self._tell(waiting, "◌", f"{how}: interrupted too")
                self._free(waiting, False)


def stop_watch(mesh: Mesh, run: Run, look: Callable[[Sequence[int]], Sequence[Finding]], tell: Callable[..., object]):
    """The watch of a run of a mesh."""

    def free(ranks: Sequence[int], is_hard: bool) -> None:
        if is_hard:  # but for those that save something, now that they were interrupted
            saving = listen(mesh.roster, ranks).at_work
            if left := [rank for rank in ranks if rank not in saving]:
                mesh.release(left, run.call, timeout=0.5)
        else:
            mesh.interrupt(ranks, run.call, timeout=0.2)

    return StopWatch(run, look, free, tell)
