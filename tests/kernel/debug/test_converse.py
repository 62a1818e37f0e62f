"""The conversation with who is stopped, without ranks: a pretended desk says what comes of what is typed, and when."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from meshbook.kernel.debug.asking import Asker
from meshbook.kernel.debug.converse import Conversation
from meshbook.kernel.debug.desk import Desk
from meshbook.kernel.debug.events import Event, Stop, Went
from meshbook.kernel.debug.stops import Stops

ASKS, ASKS_AGAIN = (Stop(1, 1, turn, "live", "ipdb> ") for turn in (1, 2))


class SlowDesk(Desk):
    """Each wait but the first, which is over too early, hears one event more; rank 1 is at work while there are any."""

    def __init__(self, *events: Event | None) -> None:
        self.events = [None, *events]  # not what a desk begins with: it would hear of real ranks
        self.stops, self.said, self._lock, self._has_left = Stops(), deque(), threading.Lock(), False
        self._hearing = []
        self.console = lambda: False
        self.stops.take(ASKS)
        states = {1: SimpleNamespace(is_at_work=True)}
        self._mesh = cast(Any, SimpleNamespace(roster=SimpleNamespace(states=states, dead=list), last_cell=7))

    def wait(self, is_so: Callable[[], bool], seconds: float = 0.3) -> bool:
        if not is_so() and (event := self.events.pop(0)) is not None:
            self.stops.take(event)
        return is_so()

    def _tell(self, ranks: Sequence[int], step: str, *args: Any) -> dict[int, Any]:
        return dict.fromkeys(ranks, True)


class Typist:
    is_beside = False
    can_ask = True

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)

    def ask(self, prompt: str, is_secret: bool = False) -> str:
        return self.lines.pop(0)

    def show(self, text: str) -> None: ...


def left_after(desk: Desk, *lines: str, stays: bool) -> list[str]:
    """What was never asked for of these lines."""
    typist = Typist(*lines)
    asker: Asker = typist
    Conversation(desk, asker, lambda text: [1], str, lambda: False, lambda: None, stays=stays).hold()
    return typist.lines


@pytest.mark.parametrize("came", [[ASKS_AGAIN], [Went(1, 1, steps=True), None, ASKS_AGAIN]], ids=["a line", "a step"])
def test_who_works_on_a_line_or_steps_is_waited_for_where_the_user_stays(came: list[Event | None]) -> None:
    assert left_after(SlowDesk(*came, Went(1, 1)), "slow()", "c", stays=True) == []
    assert left_after(SlowDesk(*came, Went(1, 1)), "slow()", "c", stays=False) == ["c"]


def test_nobody_stays_for_who_has_gone_on() -> None:
    desk = SlowDesk(Went(1, 1))
    assert left_after(desk, "c", "never", stays=True) == ["never"]


def test_nobody_stays_for_a_rank_that_is_idle_or_gone() -> None:
    desk = SlowDesk(None)
    desk.mesh.roster.states[1] = cast(Any, SimpleNamespace(is_at_work=False))
    assert left_after(desk, "slow()", stays=True) == []


class Leaving(SlowDesk):
    """Ranks 1 and 2 are at a question as they are left; what comes of that comes before they say so, or later."""

    def __init__(self, *before: Event) -> None:
        super().__init__()
        self.before = before

    def _tell(self, ranks: Sequence[int], step: str, *args: Any) -> dict[int, Any]:
        for event in self.before:
            self._take(event)
        return {1: [(1, 1)], 2: [(5, 3)]}


LATE = Stop(2, 5, 3, "live", "ipdb> ")


@pytest.mark.parametrize("num_before", range(4))
def test_who_stops_as_the_user_leaves_is_not_asked(num_before: int) -> None:
    """It has stopped before it was told, and what it asks is still under way: a prompt for it nobody would hear of."""
    events = [LATE, Went(2, 5), Went(1, 1)]
    desk = Leaving(*events[:num_before])
    desk.leave([1, 2])
    for event in events[num_before:]:
        desk._take(event)
        assert not desk.stops.waiting
    assert not desk.stops.left and not desk.stops.working
    desk._take(Stop(2, 5, 4, "live", "ipdb> "))
    assert desk.stops.ranks == (2,), "what it asks in another cell"


def test_who_goes_on_by_another_hand_is_told_at_the_prompt() -> None:
    """What was typed then means nobody, and that is not told twice."""
    desk, said = SlowDesk(), list[str]()

    class Interrupted(Typist):
        def ask(self, prompt: str, is_secret: bool = False) -> str:
            desk.stops.take(Went(1, 1))
            while not said:  # until the lookout has told
                pass
            return super().ask(prompt)

        def show(self, text: str) -> None:
            said.extend([text] if "wait" in text else [])

    Conversation(desk, Interrupted("c"), lambda text: [1], str, lambda: False, lambda: None).hold()
    assert said == ["1 does not wait any more: any line leaves its prompt\n"]
