"""What is known of one rank at a moment, in one place: what a dashboard colours, counts and tells. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

STATES = ("idle", "busy", "waiting", "stopped", "failed", "dead", "debug", "starting")
"""All states, in the order of their numbers in a frame. `debug`: stopped in the debugger."""

BAD = ("dead", "failed", "stopped")

INTERRUPTED = "interrupted"
"""Why a rank has failed whose user has stopped it."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a rank's GPU does, whoever uses it: shares from 0 to 1, bytes, degrees Celsius."""

    busy: float
    used: int
    total: int
    degrees: int


@dataclass(slots=True)
class RankFacts:
    """One rank. Who samples changes it in place: a thousand ranks are looked at four times a second.

    Times are those of `time.monotonic`.
    """

    rank: int
    state: str = "starting"
    since: float = 0.0
    """When it took up this state."""
    place: str = ""
    """The line that it is at: `cell 7 line 12`."""
    waiting: str = ""
    """The collective it waits in."""
    waiting_since: float = 0.0
    why: str = ""
    """How it ended, or what holds it: `died of SIGKILL`."""
    run: int = 0
    """The call that it works on, or has failed in while others work on it."""
    cell: str = ""
    """The name of the cell that this is."""
    pid: int = 0
    host: str = ""
    cpu: float | None = None
    """The share of one core that it has lately had."""
    memory: int | None = None
    """Resident bytes."""
    gpu: Gpu | None = None
    loop: str = ""
    """What the loop with a progress is called."""
    done: int = 0
    total: int = -1
    rate: float = 0.0
    """Items a second."""
    metric: float | None = None
    """The last value of the metric that is shown."""

    @property
    def progress(self) -> float | None:
        """The share of its loop that is done; None where that is not known."""
        return min(self.done / self.total, 1.0) if self.total > 0 else None


def counts(facts: Iterable[RankFacts]) -> dict[str, int]:
    """How many ranks are in each state that one is in.

    Example:
        >>> counts([RankFacts(0, "busy"), RankFacts(1, "busy"), RankFacts(2, "dead")])
        {'busy': 2, 'dead': 1}
    """
    found: dict[str, int] = {}
    for each in facts:
        found[each.state] = found.get(each.state, 0) + 1
    return {state: found[state] for state in STATES if state in found}
