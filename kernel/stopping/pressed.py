"""What follows a press of the stop button, as long as ranks still work."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ..debug.asking import Asker
from ..output.teller import Teller
from ..run import Run
from ..waiting.collectives import in_vain
from .heard import AGAIN, Heard, listen, reactions
from .menu import What, offer
from .patience import Patience, Step

if TYPE_CHECKING:
    from ..mesh import Mesh

_LOOKS = 0.5
"""Seconds after a press at which it is looked what those that still work do; then again and again."""

_CHOSEN = {What.KILL: Step.KILL, What.LEAVE: Step.ABANDON}


class Pressed:
    """Looks after the ranks of a run that go on after a press of the stop button.

    Those that wait in vain are freed, unasked. The others are told of at once: one that is in C++ may hear it any
    moment, and one that has heard it may save a checkpoint. The user is asked what is to be done about them after
    another press, not sooner: a question that is open when they end leaves its box in JupyterLab, in front of the cells
    to come.
    """

    def __init__(
        self,
        mesh: Mesh,
        run: Run,
        live: Teller,
        patience: Patience,
        user: Asker | None,
        catch_up: Callable[[], object],
    ) -> None:
        """`user` is who can be asked; `catch_up` tells what ranks have said so far."""
        self._mesh = mesh
        self._run = run
        self._live = live
        self._patience = patience
        self._user = user
        self._catch_up = catch_up
        self._rung = Step.WAIT
        self._looks_at = _LOOKS
        self._has_told = self._has_asked = False

    def look(self, now: float) -> int:
        """Do what is due; how often stop was pressed meanwhile."""
        rule = self._patience
        if rule.reason != "user" or rule.rung not in (Step.INTERRUPT, Step.RELEASE) or self._run.finished.done():
            return 0
        if self._rung is not rule.rung:
            self._rung, self._looks_at = rule.rung, _LOOKS
        if (waited := rule.unanswered_for(now)) < self._looks_at:
            return 0
        self._looks_at = waited + max(_LOOKS, waited / 4)  # those that do not react are silent, which takes its time
        heard = listen(self._mesh.roster, self._run.owing)
        return 0 if self._is_released(heard) else self._offer(heard)

    def _is_released(self, heard: Heard) -> bool:
        """Free those that did not react, where all of them wait for ranks that did; whether that is so.

        Their next collective would pair with that of these. One that the interrupt has struck in a collective has that
        open still in its ledger, and may be saving what it has.
        """
        if self._rung is not Step.INTERRUPT or heard.at_work:
            return False
        owing, waits = self._run.owing, False
        with suppress(KeyboardInterrupt):
            waits = in_vain(self._mesh.ledger(owing, timeout=0.2, depth=64), owing)
        if waits:
            self._patience.choose(Step.RELEASE)
            self._has_told = True  # soon, that they are freed
        return waits

    def _offer(self, heard: Heard) -> int:
        """Tell what another press would do, or ask what is to be done; how often stop was pressed meanwhile."""
        user = None if self._mesh.desk.has_console else self._user
        if not self._has_told and (user is None or self._rung is Step.INTERRUPT):
            self._has_told = True
            self._tell(heard, is_alone=user is None)
        if user is None or self._has_asked:
            return 0
        if self._rung is Step.INTERRUPT:
            self._patience.wait_on()
            return 0
        self._has_asked = True
        return self._ask(user)

    def _tell(self, heard: Heard, is_alone: bool) -> None:
        owing = self._run.owing
        then = "stop interrupts once more, breaks off collectives, and asks what to do"
        if is_alone:
            attach = f"`python -m meshbook.debug attach {os.getpid()} @busy` in a terminal looks inside"
            then = f"stop again {AGAIN}, a third time kills; {attach}"
        for ranks, said in reactions(owing, heard.ranks, self._mesh.where(owing, timeout=0.2)).items():
            self._live.note(ranks, "◌", f"{said}: {then}")

    def _ask(self, user: Asker) -> int:
        self._catch_up()
        started = time.monotonic()
        try:
            what = offer(self._mesh, self._run, user, self._live.note)
        except KeyboardInterrupt:
            return 1
        finally:
            self._patience.pause(time.monotonic() - started)
        if what in _CHOSEN:
            self._patience.choose(_CHOSEN[what])
        else:
            self._patience.wait_on()
        return 0
