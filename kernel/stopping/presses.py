"""What another press of the same button means: interrupt, then break off collectives, then kill. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from .patience import Step

WINDOW = 3.0
"""Seconds for the next press, as for those of the stop button (`Patience.window`)."""


@dataclass(slots=True)
class Presses:
    """Remembers the last step that was taken on each rank, and for which call.

    Example:
        >>> presses = Presses()
        >>> [presses.press({0: 7}, now).name for now in (0.0, 1.0, 2.0, 9.0)]
        ['INTERRUPT', 'RELEASE', 'KILL', 'INTERRUPT']
        >>> presses.press({0: 8}, 10.0).name  # the interrupt has worked: it runs something else
        'INTERRUPT'
    """

    _steps: dict[int, tuple[Step, int, float]] = field(default_factory=dict[int, tuple[Step, int, float]])

    def press(self, calls: Mapping[int, int], now: float) -> Step:
        """The next step for these ranks, which work on these calls."""
        steps = [self._next(rank, call, now) for rank, call in calls.items()]
        step = min(steps, default=Step.INTERRUPT)
        self._steps = {rank: kept for rank, kept in self._steps.items() if now - kept[2] <= WINDOW}
        self._steps.update({rank: (step, call, now) for rank, call in calls.items()})
        return step

    def renew(self, ranks: Collection[int], now: float) -> None:
        """The last step has been done, which takes its time: from now on there is the window for the next press."""
        self._steps.update({rank: (*self._steps[rank][:2], now) for rank in ranks if rank in self._steps})

    def forget(self, ranks: Collection[int]) -> None:
        """They have new processes."""
        for rank in ranks:
            self._steps.pop(rank, None)

    def _next(self, rank: int, call: int, now: float) -> Step:
        step, former, when = self._steps.get(rank, (Step.WAIT, call, now))
        if former != call or now - when > WINDOW:
            return Step.INTERRUPT
        return Step(min(step + 1, Step.KILL))
