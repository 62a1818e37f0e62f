"""The five adverbs, what they answer with, and how calls fail."""

from __future__ import annotations

import asyncio
import operator
import pickle
import threading
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime import (
    Accumulator,
    ActorError,
    Channel,
    Extent,
    Future,
    Point,
    Shape,
    SupervisionError,
    ValueMesh,
    send,
)
from meshbook.runtime.adverbs import Target, _ToPort
from meshbook.runtime.channel import ReplyPort
from meshbook.runtime.wire import codec
from meshbook.runtime.wire.messages import Call, Reply
from tests.runtime.troupe import Boom, Counter, Courier, Diary, Gate, Poet, Trouble

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage


class TestAnswers:
    def test_call_gives_a_value_for_each_point(self, stage: Stage) -> None:
        answers = stage.spawn(Counter, on=stage.shared(a=2, b=2)).rank.call().get(10)
        assert isinstance(answers, ValueMesh)
        assert answers.sizes == {"a": 2, "b": 2}
        assert [(dict(point), value) for point, value in answers][3] == ({"a": 1, "b": 1}, 3)
        assert answers.item(a=1, b=0) == 2
        assert answers.slice(a=1).values() == [2, 3]

    def test_call_one_wants_exactly_one(self, stage: Stage) -> None:
        counters = stage.spawn(Counter)
        with pytest.raises(ValueError, match=r"^call_one requires exactly 1 actor, but mesh has 2$"):
            counters.add.call_one(1)
        assert counters.add.call(0).get(10).values() == [0, 0]

    def test_choose_asks_one_of_them(self, stage: Stage) -> None:
        counters = stage.spawn(Counter)
        for _ in range(40):
            counters.add.choose(1)
        values = counters.add.call(0).get(10).values()
        assert sum(values) == 40
        assert all(values)  # 2 ** -39 to fail

    def test_who_is_chosen_is_at_its_place_in_the_view(self, stage: Stage) -> None:
        diaries = stage.spawn(Diary, on=stage.shared(a=2, b=2))
        seen = diaries.slice(a=1).now.choose().get(10)
        assert (seen["size"], seen["rank"], seen["index"]) == ({"b": 2}, {"b": seen["own"]["b"]}, seen["own"]["b"])
        port, receiver = Channel[Any].open()
        send(diaries.now, (), {}, port, selection="choose")
        seen = receiver.recv().get(10)
        assert (seen["size"], seen["rank"]) == ({"a": 2, "b": 2}, seen["own"])

    def test_stream_gives_arrivals_in_their_order(self, stage: Stage) -> None:
        gates = stage.spawn(Gate)
        port, receiver = Channel[Any].open_ranked()
        stream = gates.hold.stream(port)
        releases = [receiver.recv().get(10)[1] for _ in range(2)]
        first, last = stream
        releases[0].send("one")
        assert first.get(10) == "one"
        assert not last.done()
        releases[1].send("two")
        assert last.get(10) == "two"

    def test_stream_goes_out_when_it_is_called(self, stage: Stage) -> None:
        counters = stage.spawn(Counter)
        counters.add.stream(1)
        assert counters.add.call(0).get(10).values() == [1, 1]
        assert [future.get(10) for future in counters.add.stream(1)] == [2, 2]
        outcomes = [future.exception(10) for future in counters.fail.stream("no", rank=1)]
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["ActorError", "NoneType"]

    def test_broadcast_wants_no_answer(self, stage: Stage) -> None:
        counters = stage.spawn(Counter)
        assert counters.add.broadcast(2) is None
        assert counters.add.call(0).get(10).values() == [2, 2]

    def test_broadcast_to_nobody_is_no_error(self, stage: Stage) -> None:
        procs = stage.procs({"r": 2})
        counters = procs.spawn("counters", Counter)
        counters.add.call(1).get(10)
        counters.stop().get(10)
        assert counters.add.broadcast(1) is None
        procs.stop().get(10)
        assert counters.add.broadcast(1) is None

    def test_accumulate_folds(self, stage: Stage) -> None:
        counters = stage.spawn(Counter, on=stage.shared(a=2, b=2))
        assert Accumulator(counters.rank, 0, operator.add).accumulate().get(10) == 6
        assert Accumulator(counters.add, [], lambda all, one: [*all, one]).accumulate(n=2).get(10) == [2] * 4
        assert stage.one(Courier).fold.call_one(counters).get(10) == 6
        assert Accumulator[[], int, int](counters.rank, 0, operator.add).accumulate().get(10) == 6
        with pytest.raises(ValueError, match="no sum"):
            Accumulator(counters.fail, 0, operator.add).accumulate("no sum").get(10)
        with pytest.raises(TypeError, match="unsupported operand"):
            Accumulator(counters.rank, "", operator.sub).accumulate().get(10)

    def test_folding_may_take_its_time_and_call_actors(self, stage: Stage) -> None:
        counters, go = stage.spawn(Counter), threading.Event()

        def combine(total: int, one: int) -> int:
            assert go.wait(10)
            return total + int(counters.echo.choose(one).get(10))

        sum_of = Accumulator(counters.rank, 10, combine).accumulate()
        with pytest.raises(TimeoutError):
            sum_of.get(0)
        assert counters.echo.choose(1).get(10) == 1, "nothing else waits for it"
        go.set()
        assert sum_of.get(10) == 11

    def test_send_answers_to_a_port(self, stage: Stage) -> None:
        counters = stage.spawn(Counter)
        port, receiver = Channel[int].open_ranked()
        send(counters.add, (3,), {}, port)
        assert sorted(receiver.recv().get(10) for _ in range(2)) == [(0, 3), (1, 3)]
        send(counters.add, (), {"n": 1}, port, selection="choose")
        assert receiver.recv().get(10)[1] == 4
        send(counters.add, (1,), {})
        assert sum(counters.add.call(0).get(10).values()) == 9
        send(counters.fail, ("at a port",), {"rank": 1}, port)
        answers = [receiver.recv().exception(10) for _ in range(2)]
        assert sorted(type(answer).__name__ for answer in answers) == ["ActorError", "NoneType"]
        with pytest.raises(ValueError, match="Invalid selection: 'some' is neither all nor choose"):
            send(counters.add, (), {}, selection="some")
        assert stage.one(Courier).send_to_port.call_one(counters).get(10) == [0, 1]

    def test_of_several_who_answer_a_call_by_its_port_the_first_counts(self) -> None:
        answers: list[Any] = []
        port = ReplyPort[int](Call(5, 1, "relay"), lambda reply, _: answers.append(reply))
        fleet: Any = None
        caller = _ToPort("workers.step", fleet, port, Target((0, 1, 2), None))
        for rank in (1, 0):
            caller.on_reply(rank, Reply(6), [bytearray(codec.encode(rank).head)])
        caller.on_lost(2, "rank 2 was killed")
        assert answers == [Reply(5, True, 0.0, True)]

    def test_arguments_of_our_own_kinds_travel(self, stage: Stage) -> None:
        counter = stage.one(Counter)
        shape = Shape.row_major({"x": 2})
        for value in (shape, Extent(["x"], [2]), Point(1, Extent(["x"], [2]))):
            assert counter.echo.call_one([value]).get(10) == [value]
        values = counter.echo.call_one(ValueMesh(shape, [1, 2])).get(10)
        assert values.item(x=1) == 2
        assert counter.echo.call_one(stage.shared(r=2)).get(10).sizes == {"r": 2}


class TestMistakes:
    @pytest.mark.parametrize("adverb", ["call", "choose", "stream", "broadcast", "call_one"])
    @pytest.mark.parametrize(
        ("args", "kwargs", "text"),
        [
            ((1, 2), {}, "too many positional"),
            ((), {"m": 1}, "unexpected keyword argument 'm'"),
            ((threading.Lock(),), {}, "cannot pickle: .*lock"),
        ],
    )
    def test_wrong_arguments_are_told_here(
        self, stage: Stage, adverb: str, args: tuple[Any, ...], kwargs: dict[str, Any], text: str
    ) -> None:
        counter = stage.one(Counter)
        with pytest.raises(TypeError, match=text) as caught:
            getattr(counter.add, adverb)(*args, **kwargs)
        assert "\n" not in str(caught.value)
        assert counter.add.call_one(1).get(10) == 1

    def test_ten_gigabytes_are_told_at_once(self, process_stage: Stage) -> None:
        import numpy

        trouble = process_stage.spawn(Trouble)
        with pytest.raises(ValueError, match=r"10\.7 GB are too much for one message") as caught:
            trouble.size_of.call(numpy.empty(10 << 30, numpy.uint8))
        assert "\n" not in str(caught.value)
        with pytest.raises(ValueError, match=r"an answer of 10\.7 GB are too much"):
            trouble.huge.call(10 << 30).get(10)
        assert trouble.ok.call().get(10).values() == ["ok", "ok"]
        assert trouble.size_of.call(numpy.zeros(100, numpy.uint8)).get(10).values() == [100, 100]


class TestFailures:
    def test_it_is_both_an_actor_error_and_the_original(self, stage: Stage) -> None:
        counters = stage.spawn(Counter, name="counter")
        with pytest.raises(ValueError, match="boom") as caught:
            counters.fail.call("boom", rank=1).get(10)
        error = caught.value
        assert isinstance(error, ActorError)
        assert isinstance(error.exception, ValueError)
        assert error.message.startswith("Actor call counter.fail failed on rank 1")
        assert "Traceback of where the remote call failed (most recent call last):" in str(error)
        assert "raise ValueError(text)" in error.exception_formatted
        assert error.__cause__ is None
        assert counters.fail.call("boom", rank=5).get(10).values() == ["fine", "fine"]

    def test_attributes_of_the_original_are_there(self, stage: Stage) -> None:
        with pytest.raises(Boom) as caught:
            stage.one(Trouble).boom.call_one().get(10)
        assert caught.value.code == 7
        assert caught.value.exception.code == 7  # pyright: ignore

    def test_causes_are_told(self, stage: Stage) -> None:
        with pytest.raises(ValueError, match="outer") as caught:
            stage.one(Trouble).chained.call_one().get(10)
        assert "The above exception was the direct cause" in str(caught.value)
        assert "KeyError: 'inner'" in str(caught.value)

    @pytest.mark.parametrize(
        ("endpoint", "text"),
        [
            ("choosy", "rank 1.*Choosy: code 3: because"),
            ("locked", "rank 1.*Locked: locked in"),
            ("lock", "rank 1.*cannot pickle: .*lock"),
        ],
    )
    def test_what_cannot_travel_comes_as_text(self, stage: Stage, endpoint: str, text: str) -> None:
        trouble = stage.spawn(Trouble)
        with pytest.raises(ActorError, match=text):
            getattr(trouble.slice(r=1), endpoint).call_one().get(10)
        assert trouble.ok.call().get(10).values() == ["ok", "ok"]

    def test_a_constructor_that_raises_is_told_by_the_first_call(self, stage: Stage) -> None:
        trouble = stage.spawn(Trouble, where=1, name="trouble")
        with pytest.raises(SupervisionError, match="not here") as caught:
            trouble.ok.call().get(10)
        assert (
            "Endpoint call trouble.ok() failed, The actor <root>.<tests.runtime.troupe.Trouble trouble{'r': 1/2}>"
            in (str(caught.value))
        )
        assert caught.value.endpoint == "trouble.ok"
        with pytest.raises(SupervisionError, match=r"rank 1.*ValueError: not here"):
            trouble.initialized.get(10)
        assert trouble.slice(r=0).ok.call_one().get(10) == "ok"
        assert "not here" in stage.faults.get(timeout=10).report()

    @pytest.mark.parametrize("endpoint", ["leave", "interrupted"])
    def test_what_is_no_exception_ends_the_actor(self, stage: Stage, endpoint: str) -> None:
        trouble = stage.spawn(Trouble)
        with pytest.raises(SupervisionError, match=r"SystemExit: 2|KeyboardInterrupt"):
            getattr(trouble.slice(r=0), endpoint).call_one().get(10)
        with pytest.raises(SupervisionError):
            trouble.ok.call().get(10)
        assert trouble.slice(r=1).ok.call_one().get(10) == "ok"
        assert stage.faults.get(timeout=10).ranks == [0]

    def test_the_first_failure_ends_the_call_and_keeps_the_answers(self, stage: Stage) -> None:
        gates = stage.spawn(Gate)
        port, receiver = Channel[Any].open()
        held = gates.slice(r=0).hold.call_one(port)
        release = receiver.recv().get(10)
        both = gates.hold.call(3)  # rank 0 is busy; rank 1 fails at once, for 3 is no port
        with pytest.raises(AttributeError, match="rank 1") as caught:
            both.get(10)
        assert caught.value.partial == {}  # pyright: ignore
        release.send("on")
        assert held.get(10) == "on"

    def test_nobody_is_called_where_an_actor_is_known_to_be_dead(self, stage: Stage) -> None:
        counters = stage.spawn(Counter)
        counters.slice(r=1).fail.broadcast("for good", rank=0)
        assert stage.faults.get(timeout=10).ranks == [1]
        with pytest.raises(SupervisionError, match=r"rank 1.*ValueError: for good") as caught:
            counters.add.call(1).get(10)
        assert caught.value.partial == {}  # pyright: ignore
        assert counters.slice(r=0).add.call(1).get(10).values() == [1]
        with pytest.raises(SupervisionError) as caught:
            counters.add.call_all(1).get(10)
        assert caught.value.partial == {0: 2}  # pyright: ignore

    def test_waiting_for_all_is_an_option(self, stage: Stage) -> None:
        counters = stage.spawn(Counter)
        with pytest.raises(ValueError, match="late") as caught:
            counters.fail.call_all("late", rank=0).get(10)
        assert caught.value.partial == {1: "fine"}  # pyright: ignore
        assert counters.fail.call_all("late", rank=9).get(10).values() == ["fine", "fine"]

    def test_a_call_to_stopped_actors(self, stage: Stage) -> None:
        counters = stage.spawn(Counter)
        counters.stop().get(10)
        counters.stop().get(10)
        with pytest.raises(SupervisionError, match="stopped"):
            counters.add.call(1).get(10)
        with pytest.raises(SupervisionError, match="stopped"):
            counters.slice(r=0).add.call_one(1).get(10)

    def test_what_was_sent_before_the_stop_is_done(self, stage: Stage) -> None:
        counter = stage.one(Counter)
        answers = [counter.add.call_one(1) for _ in range(20)]
        counter.stop().get(10)
        assert [answer.get(10) for answer in answers] == list(range(1, 21))


class TestFutures:
    def test_they_come_from_calls_only(self, stage: Stage) -> None:
        with pytest.raises(TypeError, match="cannot be constructed directly"):
            Future()
        future = stage.one(Counter).add.call_one(1)
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(future)
        with pytest.raises(TypeError, match="Future cannot be pickled"):
            stage.one(Counter).echo.call_one(future)

    def test_a_timeout_cancels_nothing(self, stage: Stage) -> None:
        gate = stage.one(Gate)
        port, receiver = Channel[Any].open()
        held = gate.hold.call_one(port)
        release = receiver.recv().get(10)
        for timeout in (0, 0.01):
            with pytest.raises(TimeoutError):
                held.get(timeout)
        for wrong in (-1, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="timeout"):
                held.get(wrong)
        release.send("x")
        assert [held.get(10), held.result(timeout=10), held.exception(10), held.done()] == ["x", "x", None, True]

    def test_many_observe_one(self, stage: Stage) -> None:
        future = stage.one(Counter).fail.call_one("seen by all")
        error = future.exception(10)

        async def observe() -> BaseException | None:
            outcomes = await asyncio.gather(future.as_asyncio(), _await(future), return_exceptions=True)
            assert outcomes == [error, error]
            return error

        assert asyncio.run(observe()) is asyncio.run(observe()) is error
        with pytest.raises(ValueError, match="seen by all") as caught:
            future.get()
        assert caught.value is error

    def test_in_a_running_loop_both_ways_work_without_a_word(
        self, stage: Stage, capfd: pytest.CaptureFixture[str]
    ) -> None:
        counter = stage.one(Counter)

        async def main() -> list[int]:
            return [counter.add.call_one(1).get(10), await counter.add.call_one(1)]

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert asyncio.run(main()) == [1, 2]
        assert capfd.readouterr() == ("", "")

    def test_without_a_loop_awaiting_is_a_mistake(self, stage: Stage) -> None:
        future = stage.one(Counter).add.call_one(1)
        with pytest.raises(ValueError, match="__await__ with no active event loop"):
            _await(future).send(None)
        with pytest.raises(RuntimeError):
            future.as_asyncio()
        assert future.get(10) == 1

    def test_a_cancelled_observer_cancels_no_call(self, stage: Stage) -> None:
        poet = stage.one(Poet)
        waiting = poet.wait.call_one("x")

        async def main() -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(_await(waiting), 0.01)

        asyncio.run(main())
        poet.release.call_one().get(10)
        assert waiting.get(10) == "x"

    def test_an_error_that_nobody_looks_at_is_no_fault(self, stage: Stage, capfd: pytest.CaptureFixture[str]) -> None:
        counters = stage.spawn(Counter)
        counters.fail.call("nobody looks")
        assert counters.add.call(1).get(10).values() == [1, 1]
        assert "nobody looks" not in "".join(capfd.readouterr())


async def _await(future: Any) -> Any:
    return await future
