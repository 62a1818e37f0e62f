"""The seam between meshes and ranks: the same tests on processes and on their in-memory fake."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from meshbook.runtime.errors import ActorError, MeshStopped, SupervisionError
from meshbook.runtime.future import Future
from meshbook.runtime.mesh import actor_number, roster_of
from meshbook.runtime.orders import Order
from meshbook.runtime.wire import codec
from meshbook.runtime.wire.messages import Answer, Note, Reply
from meshbook.runtime.wire.tape import Event, Text
from tests.runtime.actors import Choosy, Fragile, Worker

if TYPE_CHECKING:
    from tests.runtime.conftest import Bench

Until = Callable[..., Any]

LOOP = "step('in')\nwhile True: pass"


class Told:
    """A caller and an audience that write down what they hear, in order."""

    def __init__(self) -> None:
        self.story: list[tuple[Any, ...]] = []
        self.ended = threading.Event()

    def on_reply(self, rank: int, reply: Reply | Answer, frames: Any) -> None:
        self.story.append(("reply", rank, codec.decode(frames[0], frames[1:])))
        self.ended.set()

    def on_note(self, rank: int, note: Note, frames: Any) -> None:
        self.story.append(("note", note.topic, codec.decode(frames[0], frames[1:])))

    def on_lost(self, rank: int, why: str) -> None:
        self.story.append(("lost", rank, why))
        self.ended.set()

    def on_output(self, rank: int, event: Event) -> None:
        if isinstance(event, Text):
            self.story.append((event.stream, event.text))


def call(workers: Worker, ranks: Sequence[int], endpoint: str, *args: object) -> tuple[int, Told]:
    """A call by number, and what is heard of it."""
    told = Told()
    roster, payload = roster_of(workers), codec.encode((args, {}))
    return roster.call(ranks, Order(actor_number(workers), endpoint, payload, on_main=True), told, told), told


def ask(workers: Worker, rank: int, endpoint: str, *args: object) -> Any:
    """The answer of a control endpoint."""
    told = Told()
    roster = roster_of(workers)
    roster.ask([rank], actor_number(workers), endpoint, codec.encode((args, {})), told)
    assert roster.reactor.wait(told.ended, 10)
    return told.story[0][2]


def interrupt(workers: Worker, rank: int, number: int = 0) -> int:
    """Interrupt a call on a rank; which one it ran."""
    told = Told()
    roster = roster_of(workers)
    roster.interrupt([rank], number, told)
    assert roster.reactor.wait(told.ended, 10)
    return told.story[0][2]


def in_step(workers: Worker, rank: int, step: str) -> Callable[[], bool]:
    return lambda: step in ask(workers, rank, "state")[1]


def test_the_adverbs(bench: Bench):
    workers = bench.workers({"dp": 2, "tp": 2})
    assert workers.rank.call().get(10).values() == [0, 1, 2, 3]
    assert workers.slice(dp=1, tp=0).rank.call_one().get(10) == 2
    assert workers.slice(dp=1).rank.choose().get(10) in (2, 3)
    assert sorted(future.get(10) for future in workers.slice(tp=1).rank.stream()) == [1, 3]
    workers.slice(dp=0).add.broadcast(5)
    assert workers.add.call(1).get(10).values() == [6, 6, 1, 1]


def test_ranks_are_up_when_spawn_says_so(bench: Bench):
    mesh = bench.up({"dp": 3})
    assert [state.name for state in mesh.roster.states.values()] == ["idle"] * 3
    mesh.spawn("workers", Worker).initialized.get(10)


def test_calls_run_in_the_order_they_were_sent(bench: Bench):
    workers = bench.workers()
    futures = [workers.do.call(f"step('{i}')\nlen(actor.steps)") for i in range(300)]
    assert [future.get(10).values() for future in futures] == [[i, i] for i in range(1, 301)]


def test_calls_from_several_threads_each_get_their_answer(bench: Bench):
    workers = bench.workers()
    found: list[tuple[int, int]] = []

    def work(base: int) -> None:
        for i in range(base, base + 50):
            found.extend((i, answer) for answer in workers.echo.call(i).get(10).values())

    threads = [threading.Thread(target=work, args=(base,)) for base in (0, 1000, 2000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 300
    assert all(asked == answered for asked, answered in found)


def test_an_error_is_of_the_original_type_and_names_the_rank(bench: Bench):
    workers = bench.workers({"dp": 2})
    with pytest.raises(ValueError, match=r"workers\.do failed on rank 1 \(dp=1.*ValueError: boom") as caught:
        workers.slice(dp=1).do.call("raise ValueError('boom')").get(10)
    assert isinstance(caught.value, ActorError)
    assert isinstance(caught.value.exception, ValueError)
    assert 'File "<do>", line 1' in caught.value.exception_formatted
    assert "mailbox" not in caught.value.exception_formatted
    assert workers.add.call(1).get(10).values() == [1, 1]


def test_a_failed_call_keeps_the_answers_of_the_others(bench: Bench):
    workers = bench.workers()
    with pytest.raises(ZeroDivisionError) as caught:
        workers.do.call("1 / here().rank").get(10)
    assert set(caught.value.partial) <= {1}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("choosy", ActorError, "Choosy: code 7: because"),
        ("locked", ActorError, "Locked: locked"),
        ("mute", ActorError, "Mute: <its __str__ raised RuntimeError>"),
        ("built", ActorError, "Built: 5"),
        ("group", ActorError, "ExceptionGroup: two"),
        ("exit", ActorError, "SystemExit: 3"),
        ("stop", ActorError, "StopIteration: 4"),
        ("os", FileNotFoundError, "No such|no such thing: 'thing'"),
        ("unicode", UnicodeDecodeError, "invalid start byte"),
        ("key", KeyError, "KeyError: 'k'"),
    ],
)
def test_every_error_arrives(inproc: Bench, name: str, kind: type[Exception], text: str):
    workers = inproc.workers({"rank": 1})
    with pytest.raises(kind, match=text) as caught:
        workers.pick.call_one(name).get(10)
    assert isinstance(caught.value, ActorError)
    assert not isinstance(caught.value, SystemExit | StopIteration)
    assert workers.add.call_one(1).get(10) == 1


@pytest.mark.real
def test_every_error_arrives_from_a_process(local: Bench):
    workers = local.workers({"rank": 1})
    texts = {}
    for name in ("choosy", "locked", "mute", "built", "group", "exit", "stop"):
        with pytest.raises(ActorError) as caught:
            workers.pick.call_one(name).get(10)
        texts[name] = caught.value.message.partition("): ")[2]
    assert texts == {
        "choosy": "Choosy: code 7: because",
        "locked": "Locked: locked",
        "mute": "Mute: <its __str__ raised RuntimeError>",
        "built": "Built: 5",
        "group": "ExceptionGroup: two (2 sub-exceptions)",
        "exit": "SystemExit: 3",
        "stop": "StopIteration: 4",
    }


def test_an_error_of_a_call_that_wants_no_answer_is_on_stderr(bench: Bench):
    workers = bench.workers({"rank": 1})
    workers.do.broadcast("raise ValueError('unheard')")
    assert workers.add.call_one(1).get(10) == 1
    assert "ValueError: unheard\n" in roster_of(workers).logs[0].read(stream="stderr")


def test_an_error_with_attributes_keeps_them(bench: Bench):
    workers = bench.workers({"rank": 1})
    error = OSError(28, "full", "disk")
    with pytest.raises(OSError, match="full") as caught:
        workers.fail.call_one(error).get(10)
    original = caught.value.exception  # type: ignore[attr-defined]
    assert (original.errno, original.filename) == (28, "disk")
    with pytest.raises(ActorError, match="Choosy"):
        workers.do.call_one("from tests.runtime.actors import Choosy\nraise Choosy(1, why='x')").get(10)
    assert Choosy(1, why="x").code == 1


def test_a_result_that_cannot_be_pickled_is_an_error(bench: Bench):
    workers = bench.workers({"rank": 1})
    with pytest.raises(ActorError, match=r"cannot pickle: list\[1\] is a _thread.lock"):
        workers.do.call_one("import threading\n[1, threading.Lock()]").get(10)
    with pytest.raises(codec.EncodeError, match="lock"):
        workers.echo.call(threading.Lock())
    assert workers.add.call_one(1).get(10) == 1


def test_a_constructor_that_fails(bench: Bench):
    mesh = bench.up()
    fragile = mesh.spawn("fragile", Fragile)
    with pytest.raises(SupervisionError, match=r"fragile\.__init__\(\) failed[^$]*rank 1[^$]*not here"):
        fragile.initialized.get(10)
    assert fragile.slice(rank=0).ok.call_one().get(10)
    with pytest.raises(SupervisionError, match="rank 1"):
        fragile.slice(rank=1).ok.call_one().get(10)


def test_what_a_call_prints_is_heard_before_its_answer(bench: Bench):
    workers = bench.workers({"rank": 1})
    source = "import sys\nfor i in range(200): print('out', i)\nprint('err', file=sys.stderr)\n'value'"
    _, told = call(workers, [0], "do", source)
    bench.reactor.wait(told.ended, 10)
    assert told.story[-1] == ("reply", 0, "value")
    text = {stream: "".join(what[1] for what in told.story if what[0] == stream) for stream in ("stdout", "stderr")}
    assert text == {"stdout": "".join(f"out {i}\n" for i in range(200)), "stderr": "err\n"}


def test_what_two_calls_print_is_told_apart(bench: Bench):
    workers = bench.workers({"rank": 1})
    tolds = [call(workers, [0], "do", f"print({i})\nprint({i})") for i in range(20)]
    for i, (number, told) in enumerate(tolds):
        bench.reactor.wait(told.ended, 10)
        assert "".join(what[1] for what in told.story[:-1]) == f"{i}\n{i}\n"
        assert roster_of(workers).logs[0].read(run=number) == f"{i}\n{i}\n"


def test_a_note_comes_before_the_answer_of_its_call(bench: Bench):
    workers = bench.workers({"rank": 1})
    _, told = call(workers, [0], "note", "display", {"n": 1})
    bench.reactor.wait(told.ended, 10)
    assert told.story == [("note", "display", {"n": 1}), ("reply", 0, "after the note")]


def test_control_endpoints_answer_while_the_main_thread_is_busy(bench: Bench, until: Until):
    workers = bench.workers({"rank": 1})
    number, told = call(workers, [0], "do", LOOP)
    until(in_step(workers, 0, "in"))
    value, _, thread = ask(workers, 0, "state")
    assert value == 0
    assert "control" in thread
    assert "not on control" in ask(workers, 0, "explode").message
    assert "no control endpoint 'add'" in ask(workers, 0, "add").message
    assert len(ask(workers, 0, "much", 1 << 20)) == 1 << 20
    assert interrupt(workers, 0, number) == number
    bench.reactor.wait(told.ended, 10)
    assert told.story[0][2].type_name == "KeyboardInterrupt"


def test_an_interrupt_of_an_ended_call_leaves_the_next_alone(bench: Bench, until: Until):
    workers = bench.workers({"rank": 1})
    first, told = call(workers, [0], "do", "1")
    bench.reactor.wait(told.ended, 10)
    second, told = call(workers, [0], "do", "step('in')\nwhile 'go on' not in actor.names: pass\n'done'")
    until(in_step(workers, 0, "in"))
    assert interrupt(workers, 0, first) == second
    assert not told.ended.is_set()
    assert interrupt(workers, 0, second) == second
    bench.reactor.wait(told.ended, 10)
    assert interrupt(workers, 0) == 0
    assert workers.add.call_one(1).get(10) == 1


@pytest.mark.slow
def test_interrupts_in_a_rush_hit_only_what_they_were_meant_for(bench: Bench):
    workers = bench.workers({"rank": 1})
    for _ in range(150):
        number, told = call(workers, [0], "do", "sum(range(3000))")
        follower, after = call(workers, [0], "do", "sum(range(3000))")
        roster_of(workers).interrupt([0], number, Told())
        bench.reactor.wait(after.ended, 10)
        assert told.ended.is_set()
        assert after.story[-1][2] == 4498500, follower
        outcome = told.story[-1][2]
        assert outcome == 4498500 or outcome.type_name == "KeyboardInterrupt"
    assert workers.add.call_one(1).get(10) == 1


def test_large_arrays_travel_both_ways_and_arrive_writable(bench: Bench):
    workers = bench.workers()
    array = np.arange(2 << 20, dtype=np.float64)  # 16 MB
    for _ in range(2):
        answers = workers.echo.call(array).get(20).values()
        assert all(np.array_equal(answer, array) for answer in answers)
    answers[0][0] = -1
    assert answers[1][0] == array[0] == 0


def test_writing_into_an_argument_shows_nowhere_else(bench: Bench):
    workers = bench.workers()
    array = np.zeros(2 << 20)
    source = "actor.kept += here().rank + 1\nfloat(actor.kept[-1])"
    workers.keep.call(array).get(20)
    assert workers.do.call(source).get(10).values() == [1.0, 2.0]
    assert workers.do.call(source).get(10).values() == [2.0, 4.0]
    assert not array.any()


def test_death_is_told_to_all_who_wait_and_to_who_calls_later(bench: Bench, until: Until):
    workers = bench.workers({"dp": 2})
    waiting = [workers.slice(dp=1).do.call_one(LOOP), workers.slice(dp=1).add.call_one(1)]
    until(in_step(workers, 1, "in"))
    roster_of(workers).kill([1])
    for future in waiting:
        with pytest.raises(SupervisionError, match=r"rank 1 \(dp=1.*killed by SIGKILL"):
            future.get(10)
    with pytest.raises(SupervisionError, match="rank 1"):
        workers.slice(dp=1).add.call_one(1).get(10)
    with pytest.raises(SupervisionError, match="rank 1"):
        workers.add.call(1).get(10)
    assert workers.slice(dp=0).add.call_one(1).get(10) == 1  # the call before was none to anybody
    assert [state.name for state in roster_of(workers).states.values()] == ["idle", "dead"]
    told = Told()
    roster_of(workers).ask([1], actor_number(workers), "state", codec.encode(((), {})), told)
    assert bench.reactor.wait(told.ended, 10)
    assert told.story[0][0] == "lost"


def test_every_call_of_many_threads_ends_while_a_rank_dies(bench: Bench):
    workers = bench.workers({"rank": 3})
    futures: list[tuple[int, Future[int]]] = []

    def work() -> None:
        for i in range(90):
            futures.append((i, workers.slice(rank=i % 3).echo.call_one(i)))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    roster_of(workers).kill([1])
    for thread in threads:
        thread.join()
    outcomes = [(i, future.exception(10) or future.get()) for i, future in futures]
    assert len(outcomes) == 270
    assert all(answer == i or (i % 3 == 1 and isinstance(answer, SupervisionError)) for i, answer in outcomes)


def test_killing_twice_is_killing_once(bench: Bench, until: Until):
    mesh = bench.up()
    changes: list[int] = []
    mesh.roster.on_change.append(changes.append)
    mesh.roster.kill([0, 1])
    mesh.roster.kill([0, 1])
    until(lambda: len(changes) >= 2)
    assert sorted(changes) == [0, 1]


def test_an_idle_mesh_leaves_by_itself(bench: Bench):
    mesh = bench.up()
    assert set(mesh.roster.stop(grace=10).values()) == {"exited with code 0"}
    assert set(mesh.roster.stop().values()) == {"exited with code 0"}
    with pytest.raises(MeshStopped, match="already been stopped"):
        mesh.spawn("workers", Worker)


def test_a_busy_mesh_is_ended(bench: Bench, until: Until):
    workers = bench.workers()
    future = workers.do.call(LOOP)
    until(in_step(workers, 1, "in"))
    assert set(roster_of(workers).stop(grace=10).values()) == {"killed by SIGKILL (signal 9)"}
    with pytest.raises(SupervisionError, match="taken down"):
        future.get(10)
    with pytest.raises(SupervisionError):
        workers.add.call(1).get(5)


def test_a_mesh_can_be_made_again(bench: Bench):
    for generation in range(3):
        workers = bench.workers()
        assert workers.add.call(generation).get(10).values() == [generation, generation]
        roster_of(workers).stop()


def test_actors_are_stopped_one_by_one(bench: Bench):
    mesh = bench.up()
    first, second = mesh.spawn("first", Worker, 1), mesh.spawn("second", Worker, 2)
    assert first.add.call(0).get(10).values() == [1, 1]
    first.stop().get(10)
    with pytest.raises(ActorError):
        first.add.call(0).get(10)
    assert second.add.call(0).get(10).values() == [2, 2]


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_call_of_any_size_to_a_dead_rank_is_told_of_its_end(bench: Bench, size: int) -> None:
    workers = bench.workers({"dp": 1})
    roster_of(workers).kill([0])
    for _ in range(2):  # the first may come before its end is known
        with pytest.raises(SupervisionError, match="rank 0"):
            workers.echo.call_one(bytes(size)).get(10)
