"""Driving a run to its end: output shown as it comes, late ranks interrupted, then one result or one error."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from ..runtime.controller.regroup import are_gone
from .debug.asking import Asker, asker
from .debug.post_mortem import post_mortem
from .debug.sitting import announce, serve
from .failures.cut_off import is_cut_off, is_torn
from .failures.together import GIVEN_UP, Together, together
from .outcome import Outcome
from .output.afterwards import Afterwards
from .output.teller import Teller
from .recovery.repairs import mended_text
from .run import Run
from .stopping.heard import AGAIN, Heard, listen, reactions
from .stopping.patience import Patience, Step
from .stopping.pressed import Pressed
from .stopping.stopped import stop, stopped
from .waiting.attention import Attention
from .waiting.collectives import reasons
from .waiting.in_vain import VainWatch

if TYPE_CHECKING:
    from .mesh import Mesh

_outcome_of = msgspec.msgpack.Decoder(Outcome).decode

TICK = 0.05
"""Seconds between two looks at a running cell: ipykernel sees an interrupt only when its loop wakes."""

_LONGEST_GAP = 0.08
"""Seconds between two looks that are too many: the collector of garbage alone takes 0.1 s where torch is imported."""

_TOLD_AFTER = 0.2
"""Seconds after the first failure at which it is told although other ranks still work."""

_SOON = 0.02
"""The same for a death, which is never made good: long enough that those who die together are told together."""


@dataclass(slots=True)
class Drive:
    """One run with its output and the rule for late ranks. `steps()` says how long to wait next."""

    mesh: Mesh
    run: Run
    live: Teller
    patience: Patience
    abandoned: tuple[int, ...] = ()
    released: set[int] = field(default_factory=set[int])
    """The ranks whose collectives were broken off."""
    heard: tuple[int, ...] = ()
    """Those of the abandoned that were interrupted, and go on."""
    killed: tuple[int, ...] = ()
    taken_back: dict[int, str] = field(default_factory=dict[int, str])
    """The ranks that had not begun, each with the cell that it still works on."""
    waiting: dict[int, str] = field(default_factory=dict[int, str])
    """Where the ranks were that had to be interrupted."""
    struck: tuple[int, ...] = ()
    """The ranks whose code was interrupted, as far as they said so."""
    late: tuple[int, ...] = ()
    """The ranks that were not done when they were to be interrupted: others raised by themselves, whatever it was."""
    mended: str = ""
    """What had to be done to the process groups afterwards, in one line."""
    parted: list[str] = field(default_factory=list[str])
    """What their ledgers of collectives say of why they waited."""
    together: Together = field(default_factory=Together)
    """What its ranks did in common, if it failed."""
    user: Asker | None = field(default_factory=asker)
    """Who can be asked what a stopped rank is to do."""
    is_inquiry: bool = False
    """Does it only ask for something? Then it is no cell that could be run again."""
    is_background: bool = False
    """Does no cell of the notebook wait for it? Then the user is not asked what a stopped rank is to do."""
    watches: tuple[Callable[[float], object], ...] = ()
    """Called at each step with the time: what looks after the ranks of the run while it is driven."""
    _spared: Heard = field(default_factory=Heard)
    """Who was last seen to work on after an interrupt, and was left to it."""
    _told_dead: set[int] = field(default_factory=set[int])
    _has_debugged: bool = False
    _has_told_failure: bool = False
    _attention: Attention = field(default_factory=lambda: Attention(_LONGEST_GAP))
    _away: float = 0.0

    def steps(self) -> Generator[float, int, None]:
        """Yields seconds to wait for news; is sent how often the user pressed stop meanwhile."""
        self.run.is_driven = True
        try:
            yield from self._steps()
        finally:
            self.run.is_driven = False

    def _steps(self) -> Generator[float, int, None]:
        if self.run.mended:
            self.live.note(self.run.ranks, "↻", self.run.mended)
        with self.mesh.desk.heard_by(self.run.rouse, serves=not self.is_background):
            yield from self._wait()
            self._debug_failed()
        self._tell_said()
        self.live.finish(time.monotonic())
        self._tell_rest()
        if self.patience.reason or self._has_failure or self.run.progress.stopped:
            is_torn = self._is_torn()
            self.parted = self.parted or self._why_broken(is_torn)
            self.together = self._together()
            self.mesh.roster.groups.is_cut |= is_torn
            self.mended = mended_text(self.mesh)
            self._give_up_gradients()
        elif are_gone(self.mesh.roster):  # it was a script, which has ended as under torchrun: actors want some, too
            self.mended = mended_text(self.mesh)
        self.run.on_late = afterwards = Afterwards(self.run, self.live, self.mesh.roster.reactor.later)
        if self.run.has_more:  # it came between the two lines above
            self.mesh.roster.reactor.schedule(afterwards)

    def _wait(self) -> Generator[float, int, None]:
        """Until the run has ended: show what comes, and do what is to be done about those that do not."""
        now, num_presses = time.monotonic(), 0
        user = None if self.is_background else self.user
        pressed = Pressed(self.mesh, self.run, self.live, self.patience, user, self._tell_said)
        vain = VainWatch.of(self.mesh, self.run)
        while not self.run.finished.done():
            num_presses += yield _SOON if self._untold_deaths() else TICK
            self._tell_said()
            if self.run.finished.done():
                break
            if self.mesh.desk.is_wanted and not num_presses:  # who presses stop wants no prompt
                num_presses = self._talk()
            self._debug_failed()
            looked, now = now, time.monotonic()
            if self.mesh.desk.held:
                self.patience.pause(now - looked)
            for watch in self.watches:
                watch(now)
            if self.patience.failing_for(now) >= _TOLD_AFTER:
                self._tell_failure()
            if self.patience.failing_for(now) >= _SOON:
                self._tell_deaths()
            if self.patience.is_patient and not self.mesh.desk.held and vain.sees(now, self.patience.failing_for(now)):
                self.patience.give_up()
            self._act(self.patience.step(now, self._has_failure, num_presses))
            num_presses = pressed.look(now)

    def _tell_said(self) -> None:
        self.live.update(self.run.take(), self._heard_until())

    def _heard_until(self) -> float:
        """Now, on a clock that stands still while nobody reads what ranks say: what one waits for may be there."""
        now = time.monotonic()
        self._away += self._attention.missed(now)
        return now - self._away

    def _talk(self) -> int:
        """Let the user talk with ranks that are stopped; how often stop was pressed meanwhile."""
        if self.mesh.desk.has_console:
            self.patience.pause(TICK)
            return 0
        started = time.monotonic()
        try:
            if self.is_background:
                announce(self.mesh, self.user, self.live.note)
            else:
                is_over, tell = self.run.finished.done, self.live.note
                serve(
                    self.mesh,
                    self.user,
                    is_over,
                    tell,
                    abort=self._abort,
                    catch_up=self._catch_up,
                    tell_lost=self._tell_lost,
                )
        except KeyboardInterrupt:
            return 1
        finally:
            self.patience.pause(time.monotonic() - started)
        return 0

    def _abort(self) -> None:
        stop([self.run], self.run.owing, "interrupted by `%abort`")
        self.mesh.interrupt()

    def _catch_up(self) -> None:
        """Show what came while the user was at a prompt, also of ranks that have failed since."""
        self.live.catch_up(self.run.take(), self._heard_until())
        self._tell_lost()

    def _tell_lost(self) -> None:
        self._tell_failure()
        self._tell_deaths()

    def _debug_failed(self) -> None:
        """`--on-error debug`: look at what failed first, while the others wait."""
        failed = self._failed_by_themselves() if self.patience.wants_debugger else []
        if not failed or self._has_debugged:
            return
        self._has_debugged = True
        self._tell_said()
        started = time.monotonic()
        with suppress(KeyboardInterrupt):
            post_mortem(self.mesh, failed, self.user, self.live.note)
        self.patience.pause(time.monotonic() - started)

    @property
    def _has_failure(self) -> bool:
        progress = self.run.progress
        return bool(progress.lost or progress.missed or set(progress.failed) - set(stopped(progress)))

    def _act(self, step: Step) -> None:
        owing = self.run.owing
        if step is Step.INTERRUPT:
            self.taken_back = self.mesh.queued(self.run)
            owing = [rank for rank in owing if rank not in self.taken_back]
            self.late = tuple(owing)
            with suppress(KeyboardInterrupt):  # pressed again, as people do
                self.waiting = self.mesh.where(owing, timeout=0.2)
                if self.patience.reason != "user":  # who pressed the button wants it at once
                    findings = self.mesh.ledger(owing, timeout=0.4, depth=64).findings
                    self.parted = reasons(findings, owing, time.monotonic() - self.run.started)
            with suppress(KeyboardInterrupt):
                hit = self.mesh.interrupt([*owing, *self.taken_back], self.run.call, timeout=0.2)
                self.struck = tuple(rank for rank, was_at_work in hit.items() if was_at_work)
            self._told_dead.update(self.taken_back)
            self.run.take_back(self.taken_back)
            if self.mesh.desk.stops.waiting:
                self.mesh.desk.leave(owing)  # who sits at a prompt in an event loop is cancelled when that goes on
        elif step is Step.RELEASE and (owing := self._to_release(owing)):
            self.released.update(owing)
            self.live.note(owing, "◌", "still at work: interrupted again, and broke off collectives they may wait in")
            with suppress(KeyboardInterrupt):
                self.mesh.release(owing, self.run.call, timeout=0.5)
        elif step is Step.KILL:
            back = f"brings {'them' if owing[1:] else 'it'} back"
            self.live.note(owing, "✗", f"killed, as you asked: `%mesh restart @dead` {back}")
            self.killed = tuple(owing)
            self.mesh.roster.kill(owing)
        elif step is Step.ABANDON:
            self.abandoned = tuple(owing)
            with suppress(KeyboardInterrupt):  # those of them that hear nothing are looked at from outside
                told = self.mesh.stacks(owing).stacks
                self.waiting |= {stack.rank: stack.place for stack in told if stack.place}
                self.heard = listen(self.mesh.roster, owing).ranks
            self.run.abandon({rank: place for rank, place in self.waiting.items() if place}, self.heard)

    def _to_release(self, owing: Sequence[int]) -> list[int]:
        """Those whose collectives are to be broken off, where they are interrupted once more.

        Unless the user wants that: who has heard the interrupt may be saving a checkpoint in a `finally`, and others of
        them wait in a collective for it.
        """
        if self.patience.is_pressed:
            return list(owing)
        former, self._spared = self._spared, listen(self.mesh.roster, owing)
        if not self._spared.at_work and self._spared == former:
            return list(owing)
        self.patience.spare(time.monotonic())
        if not former.ranks:
            [(ranks, said)] = reactions(self._spared.ranks, self._spared.ranks).items()
            self.live.note(ranks, "◌", said if self.is_background else f"{said}: stop {AGAIN}")
        left = {*self._spared.ranks, *former.ranks, *self.released}  # of the former, one may have ended just now
        return [rank for rank in owing if rank not in left]

    def _tell_failure(self) -> None:
        """Say once who failed while others still work. Who was interrupted did not fail."""
        if self._has_told_failure or not self.run.progress.failed or self.patience.reason:
            return
        if failed := self._failed_by_themselves():
            self._has_told_failure = True
            self.live.tell_failures(replace(self.run.progress, failed=failed), self.run.owing)

    def _failed_by_themselves(self) -> list[int]:
        """The ranks that failed, but for those that were stopped, or only lost their connection to one that is gone."""
        progress = self.run.progress
        innocent = stopped(progress)
        failed = [rank for rank in progress.failed if rank not in innocent]
        if not progress.gone and not innocent:
            return failed
        failures = {rank: _outcome_of(progress.outcomes[rank]).failure for rank in failed}
        return [rank for rank, failure in failures.items() if failure is None or not is_cut_off(failure)]

    def _together(self) -> Together:
        ran = self._ran()
        done = together(self.mesh.deeds(ran)) if ran else Together()
        return done if ran[1:] else replace(done, needs_all=False)

    def _ran(self) -> list[int]:
        return [rank for rank in self.run.progress.outcomes if rank not in self.taken_back]

    def _give_up_gradients(self) -> None:
        """Those that are to be reduced later, where ranks may have parted in them; new groups have done so already."""
        if self.together.unreduced == "begun":
            self.mesh.send_ahead(self._ran(), "give_up_gradients")
        elif not self.together.unreduced or not (self.mended and self.mesh.roster.groups.is_renewed):
            return
        self.together = replace(self.together, given_up=GIVEN_UP)

    def _is_torn(self) -> bool:
        """Whether connections between ranks are of no use any more, although all of them live."""
        progress = self.run.progress
        return not self.mesh.roster.dead() and any(is_torn(progress.outcomes[rank]) for rank in progress.failed)

    def _why_broken(self, is_torn: bool) -> list[str]:
        """gloo aborts a rank that gets what it does not expect, or waits in vain: who has called something else."""
        gone = self.run.progress.gone
        ends = [self.mesh.roster.states[rank].exit for rank in gone if rank in self.mesh.roster.states]
        if not is_torn and not any(end is not None and end.signum == signal.SIGABRT for end in ends):
            return []
        left = [rank for rank in self.run.ranks if rank not in gone]
        return self.mesh.ledger(left, timeout=0.4, depth=64).unlike()

    def _tell_deaths(self) -> None:
        """Say who has died while others still work, those of one moment together."""
        lost, owing = self._untold_deaths(), self.run.owing
        if lost and owing:
            self.live.tell_deaths(lost, owing)
            self._told_dead.update(lost)

    def _tell_rest(self) -> None:
        """Who stopped the cell is shown no story of it: deaths that came with the stop are told here."""
        lost = {rank: why for rank, why in self._untold_deaths().items() if rank in self.run.progress.gone}
        if lost and self.patience.reason == "user" and self.patience.rung is not Step.KILL:
            self.live.tell_deaths(lost, [])
            self._told_dead.update(lost)

    def _untold_deaths(self) -> dict[int, str]:
        lost = self.run.progress.lost
        return {r: why for r, why in lost.copy().items() if r not in self._told_dead} if lost else {}
