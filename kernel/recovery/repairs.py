"""What is done to ranks that should not go on as they are: interrupt, free, end, replace, renumber."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from ...runtime.controller.gather import Gather
from ...runtime.controller.regroup import Unstuck, are_gone, busy_ranks, mend, release, unstick, wait_until
from ...runtime.controller.reshape import Reshape
from ...runtime.controller.resize import resize_roster
from ...runtime.errors import MeshbookError, checks_for_caller
from ...runtime.healing import Healed, check_room, heal_roster
from ...runtime.mesh import ProcMesh
from ...runtime.ranges import named
from ...runtime.shape import Shape
from ...runtime.wire.deferred import untorn
from ...runtime.wire.messages import Strike
from ..debug.points import Points
from ..lent import Lent
from ..questions import Questions
from ..run import Run
from ..sources.journal import Choice, Journal
from ..stopping.heard import listen
from ..waiting.collectives import MeshLedger, in_vain
from .replaying import Tell
from .restore import HealedMesh, ResizedMesh, restore

if TYPE_CHECKING:
    from ..mesh import Mesh


LEDGER_SECONDS, LEDGER_DEPTH = 0.5, 64
"""How long ranks may take to tell their last collectives as it is decided whether these match, and how many of them."""

FREED_SECONDS = 1.0
"""How long ranks whose collectives were broken off may take to come to the end of the cell that they were in."""


def mended_text(mesh: Repairs, renews: bool = True) -> str:
    """Let the next collective work: the last ones may have been cut off on some ranks and not on others. What it took.

    Empty where all is well. With `renews`, models go on with their groups if that can be.
    """
    try:
        why = mesh.mend(renews)
    except MeshbookError as error:
        return f"no new process groups: {error}; `%mesh unstick` tries again"
    if not why:
        return ""
    if mesh.roster.dead():  # their restart makes the groups of all anew
        return f"new process groups for the ranks that live, as {why}"
    if mesh.roster.groups.is_renewed:
        return f"process groups renewed, as {why}: models go on with them"
    return f"new process groups, as {why}: wrap models in DistributedDataParallel or fully_shard again"


class Repairs(Questions):
    """The part of a `Mesh` that repairs it."""

    procs: ProcMesh
    former_ledger: MeshLedger | None = None
    """The collectives of before the last time that ranks were interrupted or freed; their groups may be new since."""
    journal: Journal
    points: Points
    _heard: deque[Run]
    _unfinished: set[Run]
    _lent: Lent
    _sending: threading.Lock

    def interrupt(self, ranks: Sequence[int] | None = None, call: int = 0, timeout: float = 0.5) -> dict[int, bool]:
        """Raise KeyboardInterrupt on these ranks if they work (on `call`, if given); which of them did."""
        chosen = self._chosen(ranks)
        gather = Gather(self.roster, chosen, f"{self.name}.interrupt")
        self.roster.interrupt(chosen, call, gather)
        gather.wait(timeout)
        return {rank: bool(running) for rank, running in gather.answers.items()}

    @untorn  # people press again
    def stop(self, run: Run) -> None:
        """Interrupt a run that nobody will watch, as Ctrl-C came before somebody did; no cell is behind it."""
        self._unfinished.discard(run)
        if run.call and not run.finished.done():
            self.interrupt(run.owing, run.call, timeout=0.2)

    def interrupt_actors(self, ranks: Sequence[int] | None = None, timeout: float = 1.0) -> dict[int, list[str]]:
        """Raise KeyboardInterrupt in what actors on these ranks do; which endpoints were at work, as `trainer.step`.

        What waits for them there is refused. The actors live on, and who has called is told.
        """
        chosen = self._chosen(ranks)
        gather = Gather(self.roster, chosen, f"{self.name}.interrupt_actors")
        self.roster.inquire(chosen, gather, Strike)
        gather.wait(timeout)
        if stopped := [rank for rank, titles in gather.answers.items() if titles and self.desk.stop_of(rank)]:
            self.desk.leave(stopped)  # an actor at a prompt hears of it when that returns
        return gather.answers

    @checks_for_caller
    def heal(
        self,
        ranks: Sequence[int] | None = None,
        *,
        replay: Choice = "auto",
        timeout: float = 60.0,
        tell: Tell = lambda line: None,
    ) -> HealedMesh:
        """Give these ranks (default: the dead ones) new processes in their places, and replay the cells that set up.

        Living ranks among them are ended first. The others keep their state; all get new process groups. Cells that
        build a model together (`fully_shard`) are replayed where all ranks that ran them come new. `tell` hears, in a
        line each, what takes long.

        Raises:
            ValueError: cells are to be replayed by numbers that none has.
            SpawnError: a rank did not come up in `timeout` seconds; or there is no room for it, and the living ones
                were let live.
            MeshStopped: the mesh was taken down.
        """
        self._check_up()
        self.journal.check(replay)
        chosen = self.roster.dead() if ranks is None else self._chosen(ranks)
        check_room(self.roster, chosen)
        try:
            healed = heal_roster(self.roster, chosen, timeout)
        finally:  # also where the user did not wait to the end: they are others now
            self._note_new(chosen)
        return self._restored(healed, replay, timeout, tell)

    def _note_new(self, ranks: Sequence[int]) -> None:
        """They are other processes now: what was known of those before is not true of them."""
        self.points.renew(ranks)
        self._lent.renew(ranks)
        self.last_failed = tuple(rank for rank in self.last_failed if rank not in ranks)

    @checks_for_caller
    def kill(self, ranks: Sequence[int], timeout: float = 10.0) -> bool:
        """End these ranks at once (SIGKILL), with what they started; whether they were gone in time."""
        self.roster.kill(self._chosen(ranks))
        return wait_until(self.roster, lambda: set(ranks) <= set(self.roster.dead()), timeout)

    @checks_for_caller
    def resize(self, sizes: Mapping[str, int], *, replay: Choice = "auto", timeout: float = 60.0) -> ResizedMesh:
        """Give axes these sizes (those not named keep theirs): the mesh grows or shrinks while it lives.

        Ranks that stay keep their coordinates, processes and state; new ones, and dead ones that stay, are set up as in
        `heal`. Where an axis changes that is not the outermost, ranks get other numbers: your actors are stopped, and
        views of the old `procs` raise `MeshStopped`. Raises what `resize_roster` does.
        """
        self._check_up()
        self.journal.check(replay)
        started, former, dead = time.monotonic(), self.axes, self.roster.dead()
        self.last_failed = tuple(rank for rank in self.last_failed if rank not in dead)  # they are to come new
        with self._sending:
            try:
                resized = resize_roster(self.roster, sizes, timeout)
            finally:
                self._take_shape(former, sizes)
        self._note_new(resized.ranks)
        healed = Healed(resized.ranks, resized.failed, (), resized.seconds, resized.making)
        done = self._restored(healed, replay, timeout, lambda line: None)
        return ResizedMesh(resized, done, time.monotonic() - started)

    def _restored(self, healed: Healed, choice: Choice, timeout: float, tell: Tell) -> HealedMesh:
        plan = self.journal.plan(choice, healed.ranks)
        done = restore(cast("Mesh", self), healed, plan, timeout, tell)
        if done.replayed or done.failed:
            # What new ranks have made in replayed cells, others have not.
            done = replace(done, mended=mended_text(self, renews=False))
        if choice != "auto":  # who chose the cells knows which others there are
            return done
        return replace(done, left_out=self.journal.left_out(plan, healed.ranks))

    def _take_shape(self, former: Mapping[str, int], sizes: Mapping[str, int]) -> None:
        """Note that the ranks are others, if they are: a resize that fails late has happened all the same."""
        if former == self.axes:
            return
        plan = Reshape.of(former, sizes)
        self.procs = ProcMesh(self.roster, Shape.row_major(plan.new))
        self.last_failed = plan.renumbered(self.last_failed)
        self.journal.reshape(plan)
        self.points.reshape(plan)

    def make_groups_sure(self) -> str:
        """Make process groups that can be used, before a cell is sent, where the last look at them left a doubt.

        Where the rank that served their store has died in silence: without a store no rank makes the `group` of its
        slice, and a cell would fail on ranks that are well. Where ranks were busy as it was last asked: with a cell
        that waited behind one that failed, say. Where cells have destroyed them, one by one, on all ranks. And where
        ranks still wait, in vain, in a cell that was stopped.
        What it took, in one line; empty where all was well.
        """
        groups = self.roster.groups
        freed = self._free_given_up()
        is_open = freed or are_gone(self.roster) or (groups.is_unsure and not busy_ranks(self.roster))
        if not is_open and self.roster.states[groups.store_rank].exit is None:
            return ""
        return "; ".join(filter(None, [*freed, mended_text(self)]))

    def _free_given_up(self) -> list[str]:
        """Free ranks that a cell has ended without, and that wait for ranks that have left it; a text for each cell.

        As it was stopped the others were still at work: nobody waited in vain yet. The next cell would not begin on
        those that wait, and its collectives on the others would pair with the ones that they wait in.
        """
        begun = {call for state in self.roster.states.values() for call in list(state.main_calls)}
        ended = [run for run in list(self._heard) if run.finished.done()] if begun else []
        return [text for run in ended if run.call in begun and (text := self._freed(run))]

    def _freed(self, run: Run) -> str:
        states = self.roster.states
        left = [rank for rank in run.ranks if rank in states and run.call in states[rank].main_calls]
        if not left or run.is_left or not in_vain(self.ledger(left, LEDGER_SECONDS, depth=LEDGER_DEPTH), left):
            return ""
        if listen(self.roster, left).at_work:  # they save something, and get new groups when they are done
            run.is_left = self.roster.groups.is_cut = True
            return f"{named(left)} left a collective in {run.name}"
        self.release(left, run.call, timeout=0.5)
        calls = [states[rank].main_calls for rank in left]
        if not wait_until(self.roster, lambda: not any(run.call in each for each in calls), FREED_SECONDS):
            return ""
        return f"freed {named(left)}, which still waited in {run.name}"

    def release(self, ranks: Sequence[int], call: int = 0, timeout: float = 1.0) -> None:
        """Interrupt these ranks and break off the collectives they wait in; `mend` is to follow."""
        self._keep_ledger(timeout)  # of ranks that wait still: afterwards they have failed
        self.interrupt(ranks, call, timeout)
        release(self.roster, ranks, timeout)

    def mend(self, renews: bool = True) -> str:
        """Renew the process groups, or make them anew, if they are of no use as they are; why, or nothing.

        Raises:
            MeshbookError: a rank could not make its own in time.
        """
        return mend(self.roster, self._have_parted, renews)

    def _have_parted(self) -> bool:
        resting = [rank for rank, state in self.roster.states.items() if not state.main_calls]
        return self._keep_ledger().has_parted(resting)

    def _keep_ledger(self, timeout: float = LEDGER_SECONDS) -> MeshLedger:
        """The process groups may be made anew now, which forgets what was issued in them."""
        ledger = self.ledger(timeout=timeout, depth=LEDGER_DEPTH)
        if ledger.lines():  # else what was before is still worth a look
            self.former_ledger = ledger
        return ledger

    @checks_for_caller
    def unstick(self, ranks: Sequence[int] | None = None, *, reinit: bool = True, timeout: float = 3.0) -> Unstuck:
        """Free ranks (default: all that are busy) from what they wait in, and keep every variable.

        Interrupts them and breaks off their collectives: those of gloo by shutting down its connections, those of nccl
        by aborting its communicators. Then (`reinit`) the process groups are renewed, so that the next collective works
        and models go on; where that cannot be, they are made anew, and what was built on the old ones is to be built
        again.

        Raises:
            MeshbookError: a rank could not make its new groups in time.
        """
        self._check_up()
        self._keep_ledger()
        return unstick(self.roster, self._chosen(ranks), reinit, timeout)
