"""Channels, ports and receivers, in one process and across them."""

from __future__ import annotations

import asyncio
import pickle
import random
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from meshbook.runtime import Channel, Port, PortReceiver, SupervisionError, ValueMesh, as_endpoint, send
from meshbook.runtime.mesh import roster_of
from tests.runtime.troupe import Counter, Gate, Halved, Poet, Teller

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage


def test_values_come_in_order(stage: Stage) -> None:
    port, receiver = Channel[int].open()
    early = receiver.recv()
    assert not early.done()
    for n in range(50):
        port.send(n)
    assert [early.get(10), *(receiver.recv().get(10) for _ in range(49))] == list(range(50))
    with pytest.raises(TimeoutError):
        receiver.recv().get(0)


def test_the_first_to_be_looked_at_is_next_and_who_is_not_looked_at_takes_nothing(stage: Stage) -> None:
    port, receiver = Channel[int].open()
    receiver.recv()  # dropped
    second, first = receiver.recv(), receiver.recv()
    assert repr(first) == "<Future: waiting>"
    for n in range(3):
        port.send(n)
    assert (first.get(10), second.get(10), receiver.recv().get(10)) == (0, 1, 2)


def test_who_has_looked_in_vain_takes_nothing(stage: Stage) -> None:
    port, receiver = Channel[int].open()

    async def await_in_vain() -> None:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(receiver.recv(), 0.01)

    with pytest.raises(TimeoutError, match=r"^nothing has come after 0 s$"):
        (late := receiver.recv()).get(0)
    assert isinstance(receiver.recv().exception(0), TimeoutError)
    assert not receiver.recv().done()
    asyncio.run(await_in_vain())
    for n in range(3):
        port.send(n)
    assert (receiver.recv().get(10), late.get(10), late.get(0), receiver.recv().get(10)) == (0, 1, 1, 2)


def test_who_asks_whether_there_is_one_takes_nothing(stage: Stage) -> None:
    port, receiver = Channel[int].open()
    port.send(1)
    port.send(2)
    asked = receiver.recv()
    assert receiver.recv().done() and asked.done()
    assert (receiver.recv().get(10), asked.get(10), asked.done(), receiver.recv().done()) == (1, 2, True, False)


def test_one_who_waits_keeps_the_place_of_another(stage: Stage) -> None:
    port, receiver = Channel[int].open()
    shared, came = receiver.recv(), threading.Event()
    shared.add_done_callback(lambda _: came.set())
    with pytest.raises(TimeoutError):
        shared.get(0)
    port.send(1)
    port.send(2)
    assert (receiver.recv().get(10), came.wait(10), shared.get(0)) == (2, True, 1)


def test_what_is_no_exception_cannot_be_raised_by_the_receiver(stage: Stage) -> None:
    port, receiver = Channel[int].open()
    port.exception("trouble")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="exceptions must derive from BaseException"):
        receiver.recv().get(10)


def test_the_names_take_a_type(stage: Stage) -> None:
    assert all([Port[int], PortReceiver[int], ValueMesh[int], Channel[int]])
    port, receiver = Channel.open()
    port.send("without one")
    assert receiver.recv().get(10) == "without one"


def test_an_exception_is_raised_by_the_receiver(stage: Stage) -> None:
    port, receiver = Channel[int].open()
    port.exception(KeyError("k"))
    port.send(1)
    with pytest.raises(KeyError, match="k"):
        receiver.recv().get(10)
    assert receiver.recv().get(10) == 1
    stage.one(Teller).fail_at.call_one(port).get(10)
    with pytest.raises(ValueError, match="at the port"):
        receiver.recv().get(10)


def test_a_port_for_one_value(stage: Stage) -> None:
    port, receiver = Channel[int].open(once=True)
    port.send(1)
    with pytest.raises(RuntimeError, match="OncePortRef already used"):
        port.send(2)
    assert receiver.recv().get(10) == 1
    port, receiver = Channel[int].open(once=True)
    teller = stage.one(Teller)
    with pytest.raises(RuntimeError, match="OncePortRef already used"):
        teller.count.call_one(port, 2).get(10)
    assert receiver.recv().get(10) == (0, 0)


def test_of_a_port_for_one_value_one_is_asked_for(stage: Stage) -> None:
    port, receiver = Channel[int].open(once=True)
    first, second = receiver.recv(), receiver.recv()
    first.add_done_callback(lambda _: None)
    for _ in range(2):
        with pytest.raises(ValueError, match="OncePort is already used: its receiver gives one value"):
            second.get(10)
    port.send(1)
    assert first.get(10) == first.get(10) == 1


def test_many_senders_interleave_and_each_keeps_its_order(stage: Stage) -> None:
    port, receiver = Channel[Any].open()
    stage.spawn(Teller).count.broadcast(port, 30)
    came = [receiver.recv().get(10) for _ in range(60)]
    for rank in range(2):
        assert [n for which, n in came if which == rank] == list(range(30))


def test_ranked_receivers_tell_who_sent(stage: Stage) -> None:
    port, receiver = Channel[str].open_ranked()
    port.send("mine")
    assert receiver.recv().get(10) == (0, "mine")
    port, plain = Channel[str].open()
    port.send("x")
    assert plain.ranked().recv().get(10) == (0, "x")
    port.send("y")
    assert plain.recv().get(10) == "y"


def test_ports_travel_and_receivers_stay(stage: Stage) -> None:
    port, receiver = Channel[str].open()
    copy = pickle.loads(pickle.dumps(port))
    copy.send("through a copy")
    assert receiver.recv().get(10) == "through a copy"
    with pytest.raises(TypeError, match="cannot be sent: send the Port"):
        pickle.dumps(receiver)
    with pytest.raises(TypeError, match="send the Port"):
        stage.one(Counter).echo.call_one(receiver)
    back = stage.one(Counter).echo.call_one({"port": [port]}).get(10)
    back["port"][0].send("there and back")
    assert receiver.recv().get(10) == "there and back"
    assert port.return_undeliverable is True
    port.return_undeliverable = False


def test_an_actor_receives_through_a_channel_of_its_own(stage: Stage) -> None:
    started, receiver = Channel[Any].open()
    held = stage.one(Gate).hold.call_one(started)
    receiver.recv().get(10).send("from outside")
    assert held.get(10) == "from outside"


def test_what_cannot_be_pickled_is_told_at_the_port(stage: Stage) -> None:
    port, receiver = Channel[Any].open(once=True)
    with pytest.raises(TypeError, match="cannot pickle"):
        port.send(n for n in ())
    port.send(1)
    assert receiver.recv().get(10) == 1


class TestExplicitResponsePorts:
    def test_it_answers_the_call(self, stage: Stage) -> None:
        tellers = stage.spawn(Teller)
        assert tellers.double.call(4).get(10).values() == [8, 8]
        assert tellers.slice(r=1).double.call_one(x=5).get(10) == 10
        assert [future.get(10) for future in tellers.double.stream(1)] == [2, 2]
        tellers.double.broadcast(1)
        with pytest.raises(TypeError, match="missing a required argument: 'x'"):
            tellers.double.call()

    def test_later_is_soon_enough(self, stage: Stage) -> None:
        teller = stage.one(Teller)
        answer = teller.later.call_one()
        teller.now.call_one().get(10)
        assert answer.get(10) == 7

    @pytest.mark.parametrize("other", [0, 1])
    def test_somebody_else_may_answer(self, stage: Stage, other: int) -> None:
        tellers = stage.spawn(Teller)
        answers = tellers.pass_on.call(tellers.slice(r=other), "hello").get(10)
        assert answers.values() == [(0, "hello"), (0, "hello")]
        with pytest.raises(KeyError, match="from another"):
            tellers.slice(r=0).pass_on.call_one(tellers.slice(r=other), "error").get(10)
        tellers.pass_on.broadcast(tellers.slice(r=other), "nobody asked")
        assert tellers.double.call(1).get(10).values() == [2, 2]

    def test_of_several_who_got_it_the_first_answers(self, stage: Stage) -> None:
        tellers = stage.spawn(Teller)
        rank, said = tellers.slice(r=0).pass_on.call_one(tellers, "me").get(10)
        assert rank in (0, 1) and said == "me"
        assert tellers.double.call(1).get(10).values() == [2, 2]

    def test_a_port_that_is_given_takes_more_than_one_value(self, stage: Stage) -> None:
        port, receiver = Channel[int].open_ranked()
        tellers = stage.spawn(Teller)
        send(tellers.twice, (), {}, port)
        assert sorted(receiver.recv().get(10) for _ in range(4)) == [(0, 1), (0, 2), (1, 1), (1, 2)]
        send(tellers.later, (), {}, port, selection="choose")
        tellers.stop().get(10)
        poet = stage.one(Poet)
        send(poet.tell, (), {"times": 3}, port)
        assert [receiver.recv().get(10) for _ in range(3)] == [(0, 0), (0, 1), (0, 2)]
        send(as_endpoint(stage.one(Counter, 5).plain_port, explicit_response_port=True), (1,), {}, port)
        assert receiver.recv().get(10) == (0, 1)

    def test_through_a_given_port_too_one_hears_of_the_end_of_the_actor(self, stage: Stage) -> None:
        port, receiver = Channel[int].open()
        teller = stage.one(Teller)
        send(teller.raises, (), {}, port)
        with pytest.raises(SupervisionError, match="no answer"):
            receiver.recv().get(10)
        assert "no answer" in stage.faults.get(timeout=10).report()
        send(teller.twice, (), {}, port)
        with pytest.raises(SupervisionError, match="no answer"):
            receiver.recv().get(10)

    def test_an_actor_that_ends_answers_what_is_open(self, stage: Stage) -> None:
        teller = stage.one(Teller)
        answer = teller.later.call_one()
        teller.stop().get(10)
        with pytest.raises(SupervisionError, match="stopped"):
            answer.get(10)

    def test_with_an_error(self, stage: Stage) -> None:
        with pytest.raises(KeyError, match=r"^'regret'$") as caught:
            stage.one(Teller).regret.call_one().get(10)
        assert type(caught.value) is KeyError and caught.value.args == ("regret",), "as it was given to the port"
        with pytest.raises(TypeError, match="exceptions must derive from BaseException, not 'trouble'"):
            stage.one(Teller).regret.call_one("trouble").get(10)
        with pytest.raises(Halved) as halved:
            stage.one(Teller).regret.call(Halved()).get(10)
        assert halved.value.partial == "half"

    def test_an_error_that_nobody_waits_for_is_the_actor_s_end(self, stage: Stage) -> None:
        stage.one(Teller).regret.broadcast()
        assert "KeyError: 'regret'" in stage.faults.get(timeout=10).report()

    def test_twice_is_once_too_many(self, stage: Stage) -> None:
        teller = stage.one(Teller)
        assert teller.twice.call_one().get(10) == 1
        assert "OncePortRef already used" in stage.faults.get(timeout=10).report()
        with pytest.raises(SupervisionError, match="OncePortRef already used"):
            teller.double.call_one(1).get(10)

    def test_what_escapes_ends_the_actor(self, stage: Stage) -> None:
        with pytest.raises(SupervisionError, match="no answer"):
            stage.one(Teller).raises.call_one().get(10)
        assert "no answer" in stage.faults.get(timeout=10).report()


def test_all_that_a_rank_has_sent_before_it_died_arrives(stage: Stage, until: Callable[..., Any]) -> None:
    if stage.engine == "inproc":
        pytest.skip("a thread does not die")
    port, receiver = Channel[int].open()
    procs = stage.procs({"r": 1})
    teller = stage.spawn(Teller, on=procs)
    roster = roster_of(teller)
    teller.double.call_one(1).get(10)
    pid = roster.states[0].pid
    # The loop is kept busy until the rank is gone: it finds its words and its end at once.
    roster.reactor.schedule(lambda: until(lambda: not psutil.pid_exists(pid)))
    teller.last_words.broadcast(port, 200)
    assert [receiver.recv().get(10) for _ in range(200)] == list(range(200))
    stage.faults.get(timeout=10)


def test_a_long_life_of_channels_leaves_no_trace(stage: Stage) -> None:
    from meshbook.runtime.here import node

    before = len(node().ports)
    chance = random.Random(1)
    for _ in range(100):
        port, receiver = Channel[int].open()
        if chance.random() < 0.5:
            port.send(1)
            assert receiver.recv().get(10) == 1
    del port, receiver
    assert len(node().ports) == before
