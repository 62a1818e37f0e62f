"""Waiting for cells that run again on ranks that came new, and freeing those that wait there for ranks which live on.

A cell may communicate in a function whose name does not say so, and is replayed then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from ...runtime.controller.remaking import LOOK_SECONDS, Vigil, waits_of
from ...runtime.ranges import named
from ..run import Run
from ..sources.journal import Replay

if TYPE_CHECKING:
    from ..mesh import Mesh

Tell = Callable[[str], object]
"""Hears, in a line, what takes long."""

TELL_SECONDS = 3.0
"""How long cells may run before the user is told which one is waited for."""


class Replaying:
    """Cells on their way on the ranks in `new`, in the order in which they were sent."""

    def __init__(self, mesh: Mesh, runs: Sequence[tuple[Replay, Run]], new: Collection[int], tell: Tell) -> None:
        self._mesh = mesh
        self._runs = runs
        self._vigil = Vigil(len(mesh.roster.states), frozenset(new))
        self._tell = tell
        self._next_tale = time.monotonic() + TELL_SECONDS
        self.vain: dict[str, str] = {}
        """By cell, the function of torch in which it waited for ranks that live on."""
        self.late: set[str] = set()
        """The cells that were interrupted, as they took too long."""

    def wait(self, deadline: float) -> None:
        """Wait until all are done. Those that are not at `deadline`, by `time.monotonic`, are interrupted."""
        for replay, run in self._runs:
            while not _is_done(run, max(0.0, min(LOOK_SECONDS, deadline - time.monotonic()))):
                if time.monotonic() >= deadline:
                    self._give_up(replay, run)
                    break
                self._free_the_stuck()
                self._say_what_takes_long(replay, run)

    def _give_up(self, replay: Replay, run: Run) -> None:
        self.late.add(replay.name)
        self._mesh.interrupt(run.owing, run.call)
        if not _is_done(run, 1.0):
            run.abandon()

    def _free_the_stuck(self) -> None:
        at_work: dict[int, Replay] = {}
        for replay, run in self._runs:
            for rank in run.owing:
                at_work.setdefault(rank, replay)
        stuck = self._vigil.look(waits_of(self._mesh.roster, sorted(at_work)))
        self.vain.update({at_work[rank].name: call for rank, call in stuck.items()})
        if stuck:
            self._mesh.release(list(stuck))

    def _say_what_takes_long(self, replay: Replay, run: Run) -> None:
        now = time.monotonic()
        if now >= self._next_tale:
            self._next_tale = now + 10 * TELL_SECONDS
            self._tell(f"{named(run.owing)} still: {replay.name} runs again there")


def _is_done(run: Run, timeout: float) -> bool:
    try:
        run.finished.get(timeout)
    except TimeoutError:
        return False
    return True
