"""The collector runs a `__del__` wherever it likes: also inside of a call, and it may make one itself."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from meshbook.runtime.controller.roster import Roster
from meshbook.runtime.orders import Order
from meshbook.runtime.wire.messages import AnyMessage, Call, Reply
from tests.runtime.controller.test_roster import CALL, NOTHING, Heard, PaperCrew, new_roster

RELEASE = Order(1, "release", NOTHING)


class Handle:
    """Something of a program that tells an actor when it is not needed any more."""

    def __init__(self, roster: Roster, caller: Heard) -> None:
        self.roster, self.caller = roster, caller

    def __del__(self) -> None:
        self.roster.call([0], RELEASE, self.caller)


class CollectingCrew(PaperCrew):
    """What is garbage is found while it sends."""

    def __init__(self) -> None:
        super().__init__()
        self.garbage: list[object] = []

    def post_control(self, ranks: Sequence[int], message: AnyMessage, payload: Any = None) -> None:
        self.garbage.clear()
        super().post_control(ranks, message, payload)


def call_with_a_finalizer(roster: Roster, crew: CollectingCrew, heard: Heard) -> None:
    """One that calls too; on a thread, as one that waits for itself would hold up all tests."""
    crew.garbage.append(Handle(roster, heard))
    calling = threading.Thread(target=roster.call, args=([0], CALL, None), daemon=True)
    calling.start()
    calling.join(10)
    assert not calling.is_alive()


def test_a_call_that_a_finalizer_makes_inside_of_a_call_goes_after_it():
    crew, heard = CollectingCrew(), Heard()
    roster, _, reactor = new_roster({"rank": 1}, crew=crew)
    call_with_a_finalizer(roster, crew, heard)
    reactor.turn()
    sent = [message for _, _, message in crew.posted if isinstance(message, Call)]
    assert [call.endpoint for call in sent] == ["f", "release"]
    roster.on_message(0, Reply(sent[1].seq), [])
    assert heard.by_rank == {0: ["reply"]}


def test_who_calls_in_a_finalizer_as_the_mesh_is_taken_down_is_told():
    crew, heard = CollectingCrew(), Heard()
    roster, _, reactor = new_roster({"rank": 1}, crew=crew)
    call_with_a_finalizer(roster, crew, heard)
    roster.stop(0)
    reactor.turn()
    assert "was taken down" in heard.by_rank[0][0]
