"""Calls that wait for their turn behind one that was made before: `long_calls.behind`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshbook.runtime import Channel, endpoint
from meshbook.runtime.controller.long_calls import behind
from meshbook.runtime.wire.post import next_number
from tests.runtime.troupe import Gate, Poet, Teller

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage


def test_a_call_waits_for_one_of_before(stage: Stage) -> None:
    gates, others = stage.spawn(Gate, name="gate"), stage.spawn(Gate, name="gate")
    gates.initialized.get(10)
    roster = stage.shared(r=2).roster
    port, receiver = Channel[Any].open()
    held = gates.slice(r=1).hold.call_one(port)
    release = receiver.recv().get(10)
    since = next_number()
    assert behind(roster, since) == {}
    others.thread.call().get(10)  # another actor has its own turns, whatever it is called
    waiting = gates.thread.call()
    assert behind(roster, since) == {1: "gate.hold, called before it"}
    assert behind(roster, next_number()) == {}  # those of before wait for each other: that is no news
    release.send("on")
    assert (held.get(10), len(waiting.get(10))) == ("on", 2)
    assert behind(roster, since) == {}


def test_it_waits_for_the_constructor(stage: Stage) -> None:
    port, receiver = Channel[Any].open()
    gate = stage.one(Late, port)
    release = receiver.recv().get(10)
    since = next_number()
    answer = gate.hello.call_one()
    assert behind(stage.shared(r=2).roster, since) == {0: "late.__init__, called before it"}
    release.send("on")
    assert answer.get(10) == "on"


def test_who_takes_no_turn_keeps_nobody_from_its_own(stage: Stage) -> None:
    roster, poet, teller = stage.shared(r=2).roster, stage.one(Poet), stage.one(Teller)
    assert [made.initialized.get(10) for made in (poet, teller)] == [None, None]
    waiting, asked = poet.wait.call_one("one"), teller.later.call_one()
    since = next_number()
    more = poet.wait.call_one("two")
    ready = poet.release.call_one(), teller.now.call_one()
    assert behind(roster, since) == {}
    assert [future.get(10) for future in (waiting, more, asked)] == ["one", "two", 7]
    assert [future.get(10) for future in ready] == [["one", "two"], None]


class Late(Gate):
    """Is made when it is told to."""

    def __init__(self, started: Any) -> None:
        port, receiver = Channel[str].open()
        started.send(port)
        self.said = receiver.recv().get(20)

    @endpoint
    def hello(self) -> str:
        return self.said
