"""How long a cell waits for its ranks, and what is done about those that are late. Pure: time is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Step(Enum):
    """What to do now."""

    WAIT = auto()
    INTERRUPT = auto()
    """Interrupt the ranks that still work."""
    ABANDON = auto()
    """Stop waiting: they do not react, and stay busy."""


@dataclass
class Patience:
    """Decides for one cell when ranks that still work are interrupted and when they are given up.

    After the first failure the others have `grace` seconds (`on_error="stop"`; with `"wait"` they have as long as they
    want). After `timeout` seconds, if one was given, and when the user interrupts, they have none. Whoever has not
    reacted to an interrupt after `patience` seconds is left alone.

    Example:
        >>> rule = Patience(start=0.0, grace=2.0)
        >>> rule.step(1.0, has_failure=True), rule.step(3.1, has_failure=True), rule.step(5.2, has_failure=True)
        (<Step.WAIT: 1>, <Step.INTERRUPT: 2>, <Step.ABANDON: 3>)
        >>> rule.reason
        'failure'
    """

    start: float
    on_error: str = "stop"
    grace: float = 2.0
    timeout: float | None = None
    patience: float = 2.0
    reason: str = ""
    """Why ranks were interrupted: `failure`, `timeout` or `user`; empty when they were not."""
    _failed_at: float | None = None
    _interrupted_at: float | None = None

    def step(self, now: float, has_failure: bool, is_interrupted: bool = False) -> Step:
        """What to do at `now`. `INTERRUPT` is said once."""
        if self._interrupted_at is not None:
            return Step.ABANDON if now - self._interrupted_at >= self.patience else Step.WAIT
        if has_failure and self._failed_at is None:
            self._failed_at = now
        self.reason = self._why(now, is_interrupted)
        if not self.reason:
            return Step.WAIT
        self._interrupted_at = now
        return Step.INTERRUPT

    def failing_for(self, now: float) -> float:
        """Seconds since the first failure; 0 before it."""
        return 0.0 if self._failed_at is None else now - self._failed_at

    def _why(self, now: float, is_interrupted: bool) -> str:
        if is_interrupted:
            return "user"
        if self.timeout is not None and now - self.start >= self.timeout:
            return "timeout"
        if self.on_error == "stop" and self._failed_at is not None and now - self._failed_at >= self.grace:
            return "failure"
        return ""
