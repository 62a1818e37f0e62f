"""How long a cell waits for its ranks, and what is done about those that are late. Pure: time is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Step(IntEnum):
    """What to do now; from `INTERRUPT` on, the rungs of a ladder that is only climbed."""

    WAIT = 0
    INTERRUPT = 1
    """Interrupt the ranks that still work."""
    RELEASE = 2
    """They do not react: break off the collectives that they wait in."""
    KILL = 3
    """The user wants them gone."""
    ABANDON = 4
    """Stop waiting: they do not react, and stay busy."""


@dataclass
class Patience:
    """Decides for one cell when ranks that still work are interrupted, released, killed or given up.

    After the first failure the others have `grace` seconds (`on_error="stop"`; with `"wait"` they have as long as they
    want; with `"debug"` the seconds begin when the user has looked at the failure), and none once all of them were
    seen to wait in vain (`give_up`). After `timeout` seconds, if one was given, they have none. Whoever has not reacted
    to the interrupt `impatience` seconds later is released from its collective, and `patience` seconds after the last
    step left alone. Who has heard it and saves something (`spare`) has `saving` seconds.

    The user climbs the same ladder by hand: the first press of the stop button interrupts, the second releases, the
    third kills. For the next press there are `window` seconds.

    Example:
        >>> rule = Patience(start=0.0, grace=2.0)
        >>> [rule.step(now, has_failure=True).name for now in (1.0, 3.1, 3.2, 3.5, 5.6)]
        ['WAIT', 'INTERRUPT', 'WAIT', 'RELEASE', 'ABANDON']
        >>> rule.reason
        'failure'
    """

    start: float
    on_error: str = "stop"
    grace: float = 2.0
    timeout: float | None = None
    impatience: float = 0.3
    patience: float = 2.0
    window: float = 3.0
    saving: float = 10.0
    reason: str = ""
    """Why ranks were interrupted: `failure`, `timeout` or `user`; empty when they were not."""
    rung: Step = Step.WAIT
    """The last step that was taken."""
    is_waiting_on: bool = False
    """The user was asked what comes next, and waits."""
    has_given_up: bool = False
    """Was the grace cut short?"""
    _failed_at: float | None = None
    _stepped_at: float = 0.0
    _interrupted_at: float = 0.0
    _num_presses: int = 0
    _chosen: Step = Step.WAIT

    def step(self, now: float, has_failure: bool, num_presses: int = 0) -> Step:
        """What to do at `now`, after so many more presses of the stop button. Each step but `WAIT` is said once."""
        self._num_presses += num_presses
        self.is_waiting_on = self.is_waiting_on and not num_presses
        if has_failure and self._failed_at is None:
            self._failed_at = now
        self.reason = self.reason or self._why(now)
        rung = self._next(now) if self.reason else self.rung
        if rung is self.rung:
            return Step.WAIT
        self.rung, self._stepped_at = rung, now
        if rung is Step.INTERRUPT:
            self._interrupted_at = now
        return rung

    def choose(self, rung: Step) -> None:
        """The user was asked what is to be done next, rather than to press again: that, without the rungs below it."""
        self._chosen = rung

    @property
    def is_patient(self) -> bool:
        """Have others time because of a failure, which ends?"""
        return self._failed_at is not None and self.on_error != "wait" and not self.reason

    def give_up(self) -> None:
        """The others wait for what has failed: more time would be of no use to them."""
        self.has_given_up = self.is_patient

    @property
    def is_pressed(self) -> bool:
        """Is it the user who wants what is done to the ranks now?"""
        return self.reason == "user" or max(self._wanted, self._chosen) >= Step.RELEASE

    def spare(self, now: float) -> None:
        """Ranks that were interrupted save something: look again later. A press from now on is for them."""
        if now - self._interrupted_at < self.saving:
            self.rung, self._stepped_at = Step.INTERRUPT, now
        self._num_presses = max(self._num_presses, Step.INTERRUPT)

    def wait_on(self) -> None:
        """The user was asked, and waits: nothing more is done before the next press."""
        self.is_waiting_on = True

    @property
    def wants_debugger(self) -> bool:
        """Is the user to look at what failed, before anything is done about the others?"""
        return self.on_error == "debug" and not self.reason

    def pause(self, seconds: float) -> None:
        """The user was asked something meanwhile: no time has passed for the ranks."""
        self.start += seconds
        self._stepped_at += seconds
        self._interrupted_at += seconds
        if self._failed_at is not None:
            self._failed_at += seconds

    def failing_for(self, now: float) -> float:
        """Seconds since the first failure; 0 before it."""
        return 0.0 if self._failed_at is None else now - self._failed_at

    def unanswered_for(self, now: float) -> float:
        """Seconds since the last step; 0 before the first."""
        return now - self._stepped_at if self.rung else 0.0

    @property
    def _wanted(self) -> Step:
        """The rung that the user wants, by pressing the button so often."""
        return Step(min(self._num_presses, Step.KILL))

    def _next(self, now: float) -> Step:
        """The rung to stand on at `now`."""
        waited = now - self._stepped_at
        if self.rung is Step.WAIT:
            return Step.INTERRUPT
        if self._chosen > self.rung:
            return self._chosen
        if self._wanted > self.rung:
            return Step(self.rung + 1)
        if self.is_waiting_on:
            return self.rung
        if self.rung is Step.INTERRUPT and self.reason != "user" and waited >= self.impatience:
            return Step.RELEASE
        if self.rung is Step.ABANDON or waited >= (self.window if self.reason == "user" else self.patience):
            return Step.ABANDON
        return self.rung

    def _why(self, now: float) -> str:
        if self._num_presses:
            return "user"
        if self.timeout is not None and now - self.start >= self.timeout:
            return "timeout"
        is_over = self.has_given_up or self.failing_for(now) >= self.grace
        return "failure" if self.is_patient and is_over else ""
