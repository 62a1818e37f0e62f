"""What ranks say after the end of their cell: lines of one moment are told together, so that equal ones are folded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Protocol

from ..ranks.comms import CommMessage
from ..run import Run, Said

MOMENT = 0.05
"""Seconds that a line waits for those of other ranks."""


class LateTeller(Protocol):
    """The part of a cell's teller that is for this."""

    def late(self, said: Iterable[Said], now: float, is_last: bool = False) -> float | None:
        """Tell what came; seconds after which to be called again, if something is kept back until then."""


class Afterwards:
    """Called on the loop's thread whenever something has come; `later` calls on it when so many seconds are over."""

    def __init__(self, run: Run, teller: LateTeller, later: Callable[[float, Callable[[], object]], object]) -> None:
        self._run = run
        self._teller = teller
        self._later = later
        self._said: list[Said] = []
        self._is_kept_back = False

    def __call__(self) -> None:
        is_first = not self._said
        said = self._run.take()
        self._said += said
        if self._run.roster.is_stopped or any(isinstance(item, CommMessage) for _, item in said):
            self._tell()  # nobody may come round again; and who moves a slider waits for its answer
        elif is_first and said:
            self._later(MOMENT, self._tell)

    def _tell(self) -> None:
        said, self._said = self._said, []
        if said or self._is_kept_back:
            seconds = self._teller.late(said, time.monotonic(), self._run.roster.is_stopped)
            self._is_kept_back = seconds is not None
            if seconds is not None:
                self._later(seconds, self._tell)
