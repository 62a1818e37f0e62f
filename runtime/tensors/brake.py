"""Ctrl-C while ranks compute: what was issued and has begun nowhere is left out, on all ranks from the same place on.

Collectives need that: a rank that had done one operation more than another would wait for it for ever. So each rank is
held and says how far it is, and all go on as far as the first of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ..actor import Actor, endpoint
from ..errors import MeshbookError
from ..here import node

_ANSWER_SECONDS = 2.0
"""What ranks have to say how far they are; where one does not, nothing is left out."""

_HOLD_SECONDS = 10.0
"""After which a rank goes on that was held and has heard no more."""


class Progress:
    """How far a rank is in the program. Its worker asks before each operation; on another thread it may be held."""

    def __init__(self) -> None:
        self._begun = 0
        self._is_held = False
        self._left_out: list[range] = []
        self._changed = threading.Condition()

    def begin(self, number: int) -> bool:
        """Whether this operation, the next one, is to be computed. Waits while it is held."""
        self._begun = number  # before the look, as `hold` does it the other way round: one of the two sees the other
        if self._is_held:
            with self._changed:
                self._changed.wait_for(lambda: not self._is_held, _HOLD_SECONDS)
                self._is_held = False
        return not self._left_out or self._is_wanted(number)

    def hold(self) -> int:
        """Begin nothing more for now; the number of what was begun last."""
        with self._changed:
            self._is_held = True
        return self._begun

    def go_on(self, left_out: range) -> None:
        """Go on, but without these."""
        with self._changed:
            self._left_out.append(left_out)
            self._is_held = False
            self._changed.notify_all()

    def _is_wanted(self, number: int) -> bool:
        with self._changed:
            self._left_out = [each for each in self._left_out if number < each.stop]
            return not any(number in each for each in self._left_out)


_progress: dict[tuple[int, int], Progress] = {}
"""By mesh and rank, as ranks may be threads of one process."""


def own_progress() -> Progress:
    """That of the rank on which this runs."""
    return _progress.setdefault(node().address, Progress())


class Brake(Actor):
    """Reaches the worker of its rank while that computes."""

    _is_careful = True

    @endpoint
    def hold(self) -> int:
        return own_progress().hold()

    @endpoint
    def go_on(self, first: int, last: int) -> None:
        own_progress().go_on(range(first, last + 1))


def leave_out(spawn: Callable[..., Any], last: int) -> range:
    """Which operations, up to the last one that was issued, are not computed any more, on all ranks.

    None of them where a rank is dead or does not answer.
    """
    brake, begun = spawn("brake of tensors", Brake), last
    try:
        begun = max(brake.hold.call_all().get(_ANSWER_SECONDS).values())
    except (MeshbookError, TimeoutError):
        pass
    finally:
        brake.go_on.broadcast(begun + 1, last)
        brake.stop()
    return range(begun + 1, last + 1)
