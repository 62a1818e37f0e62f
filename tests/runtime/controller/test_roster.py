"""The controller's book of ranks, with a crew that only writes down what it is asked: no processes, no threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from meshbook.runtime.controller.audiences import listen_by
from meshbook.runtime.controller.roster import Roster
from meshbook.runtime.engines.base import Exit
from meshbook.runtime.engines.spec import RankSpec, Seat, environment, standings
from meshbook.runtime.errors import MeshStopped, SpawnError
from meshbook.runtime.orders import Birth, Order
from meshbook.runtime.session import specs_for
from meshbook.runtime.wire import codec
from meshbook.runtime.wire.messages import Answer, AnyMessage, Ask, Bye, Call, Interrupt, Note, Ready, Reply, Spawn
from meshbook.runtime.wire.messages import View as View
from meshbook.runtime.wire.reactor import Signal
from meshbook.runtime.wire.tape import Ended, Text

NOTHING = codec.encode(((), {}))
CALL = Order(1, "f", NOTHING)
ON_MAIN = Order(1, "f", NOTHING, on_main=True)


class StillReactor:
    """A loop that turns when the test says so."""

    def __init__(self) -> None:
        self.scheduled: list[Callable[[], object]] = []

    def schedule(self, call: Callable[[], object]) -> None:
        self.scheduled.append(call)

    def wake(self) -> None:
        """Nobody waits."""

    def wait(self, event: Signal, timeout: float | None = None) -> bool:
        return event.is_set()

    def let_finish(self) -> None:
        """Between two turns it does nothing."""

    def turn(self) -> None:
        while self.scheduled:
            self.scheduled.pop(0)()


class PaperCrew:
    """Engine and crew in one."""

    name = "paper"

    def __init__(self) -> None:
        self.posted: list[tuple[str, tuple[int, ...], AnyMessage]] = []
        self.killed: list[int] = []
        self.respawned: list[tuple[int, int]] = []
        self.is_closed = False
        self.pids: dict[int, int] = {}

    def spawn(self, specs: Any, listener: Any, how: str = "auto") -> PaperCrew:
        return self

    def post(self, ranks: Sequence[int], message: AnyMessage, payload: Any = None) -> None:
        self.posted.append(("data", tuple(ranks), message))

    def post_control(self, ranks: Sequence[int], message: AnyMessage, payload: Any = None) -> None:
        self.posted.append(("control", tuple(ranks), message))

    def respawn(self, specs: Sequence[RankSpec]) -> None:
        self.respawned += [(spec.rank, spec.generation) for spec in specs]

    def stats(self, ranks: Sequence[int]) -> dict[int, Any]:
        return {}

    def kill(self, ranks: Sequence[int]) -> None:
        self.killed += ranks

    def close(self) -> None:
        self.is_closed = True

    def warm(self) -> None: ...


class Heard:
    """A caller that counts."""

    def __init__(self) -> None:
        self.by_rank: dict[int, list[str]] = {}
        self.notes: list[str] = []
        self.output: list[object] = []

    def on_reply(self, rank: int, reply: Reply | Answer, frames: Any) -> None:
        self.by_rank.setdefault(rank, []).append("reply")

    def on_note(self, rank: int, note: Note, frames: Any) -> None:
        self.notes.append(note.topic)

    def on_lost(self, rank: int, why: str) -> None:
        self.by_rank.setdefault(rank, []).append(why)

    def on_output(self, rank: int, event: object) -> None:
        self.output.append(event)


class Nobody:
    """A hub that wants to know nothing."""

    def on_other(self, roster: Roster, rank: int, message: object, frames: object) -> None: ...

    def on_rank_gone(self, roster: Roster, rank: int, why: str) -> None: ...
    def on_stopped(self, roster: Roster) -> None: ...

    def on_rank_back(self, roster: Roster, rank: int) -> None: ...


def new_roster(
    axes: dict[str, int], *, ready: bool = True, crew: PaperCrew | None = None
) -> tuple[Roster, PaperCrew, StillReactor]:
    crew, reactor = crew or PaperCrew(), StillReactor()
    roster: Roster = Roster(reactor, crew, specs_for(axes), Nobody())  # type: ignore[arg-type]
    if ready:
        for rank in roster.states:
            roster.on_message(rank, Ready(100 + rank), [])
    return roster, crew, reactor


def close(roster: Roster) -> None:
    for log in roster.logs.values():
        log.close()


def test_a_mesh_is_up_when_all_are_ready():
    roster, _, _ = new_roster({"dp": 2}, ready=False)
    assert [state.name for state in roster.states.values()] == ["starting"] * 2
    roster.on_message(1, Ready(11), [])
    with pytest.raises(SpawnError, match=r"^rank 0 \(dp=0\) not ready after 0.5 s$"):
        roster.wait_ready(0.5)
    roster.on_message(0, Ready(10), [])
    roster.wait_ready(0.5)
    assert [state.name for state in roster.states.values()] == ["idle"] * 2


def test_who_is_late_is_told_with_last_words():
    roster, _, _ = new_roster({"rank": 3}, ready=False)
    roster.on_output(0, [Text(0, "stderr", "still\nimporting\n")])
    with pytest.raises(SpawnError, match=r"^rank 0 and 2 more not ready after 1 s\n  still\n  importing$"):
        roster.wait_ready(1)
    close(roster)


def test_who_could_not_prepare_is_told():
    roster, _, _ = new_roster({"dp": 2}, ready=False)
    roster.on_message(1, Ready(11, "ImportError: no x"), [])
    with pytest.raises(SpawnError, match=r"^rank 1 \(dp=1, pid 11\) did not come up: ImportError: no x$"):
        roster.wait_ready(1)


def test_who_ended_is_told():
    roster, _, _ = new_roster({"dp": 2}, ready=False)
    roster.on_exit(1, Exit(signum=11))
    with pytest.raises(SpawnError, match=r"did not come up: killed by SIGSEGV \(signal 11\)$"):
        roster.wait_ready(1)


def test_who_ended_before_it_was_ready_is_still_known_by_its_process():
    crew = PaperCrew()
    roster, _, _ = new_roster({"dp": 2}, ready=False, crew=crew)
    crew.pids[1] = 11
    roster.on_exit(1, Exit(signum=9))
    del crew.pids[1]
    assert roster.name_of(1) == "rank 1 (dp=1, pid 11)"


def test_names_of_ranks():
    roster, _, _ = new_roster({"dp": 2, "tp": 2})
    assert roster.name_of(3) == "rank 3 (dp=1,tp=1, pid 103)"
    assert new_roster({"rank": 2}, ready=False)[0].name_of(1) == "rank 1"
    assert new_roster({"rank": 2})[0].name_of(1) == "rank 1 (pid 101)"
    assert new_roster({})[0].name_of(0) == "rank 0 (pid 100)"


class BrokenListener:
    """What is printed goes to a stream of the program that raises."""

    def on_said(self, roster: Roster, rank: int, event: object) -> None: ...

    def settle(self) -> None:
        raise AttributeError("'Tee' object has no attribute 'flush'")


def test_who_waits_is_told_also_where_what_was_printed_cannot_be_shown(monkeypatch: pytest.MonkeyPatch):
    reported: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    roster, _, _ = new_roster({"rank": 2})
    heard = Heard()
    listen_by(BrokenListener)
    try:
        call = roster.call([0, 1], CALL, heard)
    finally:
        listen_by(None)
    roster.on_exit(0, Exit(code=3))
    roster.on_message(1, Reply(call, talked=True), [])
    assert heard.by_rank.keys() == {0, 1}
    assert roster.dead() == [0]
    assert [type(args.exc_value) for args in reported] == [AttributeError] * 2


def test_ranks_that_cannot_be_sent_home_are_ended():
    class FullCrew(PaperCrew):
        def post(self, ranks: Sequence[int], message: AnyMessage, payload: Any = None) -> None:
            raise OSError("Too many open files")

    roster, crew, _ = new_roster({"rank": 1}, crew=FullCrew())
    with pytest.raises(OSError, match="Too many"):
        roster.stop(0)
    assert crew.is_closed


def test_a_rank_is_busy_until_it_has_answered_all():
    roster, _, _ = new_roster({"rank": 1})
    numbers = [roster.call([0], CALL, Heard()) for _ in range(2)]
    began = roster.states[0].since
    assert roster.states[0].name == "busy"
    roster.on_message(0, Reply(numbers[0]), [])
    assert roster.states[0].name == "busy"
    roster.on_message(0, Reply(numbers[1]), [])
    assert roster.states[0].name == "idle"
    assert roster.states[0].since >= began


def test_a_call_that_wants_no_answer_keeps_nobody_busy():
    roster, crew, _ = new_roster({"rank": 1})
    number = roster.call([0], ON_MAIN, None)
    assert crew.posted == [("data", (0,), Call(number, 1, "f", None, False))]
    assert roster.states[0].name == "idle"


def test_what_goes_over_which_lane():
    roster, crew, _ = new_roster({"rank": 2})
    asked = roster.ask([1], 5, "where", NOTHING, Heard())
    interrupted = roster.interrupt([0, 1], 7, Heard())
    assert crew.posted == [("control", (1,), Ask(asked, 5, "where")), ("control", (0, 1), Interrupt(interrupted, 7))]
    assert roster.states[1].name == "idle"


def test_output_goes_to_the_audience_of_its_call_and_to_the_log():
    roster, _, _ = new_roster({"rank": 1})
    heard, other = Heard(), Heard()
    number = roster.call([0], ON_MAIN, heard, heard)
    roster.call([0], ON_MAIN, other, other)
    events = [Text(number, "stdout", "mine\n"), Text(0, "stdout", "nobody's\n"), Ended(number)]
    roster.on_output(0, events)
    assert heard.output == [events[0], events[2]]
    assert other.output == []
    roster.forget_audience(number)
    roster.on_output(0, [Text(number, "stdout", "late\n")])
    assert len(heard.output) == 2
    assert roster.logs[0].read() == "mine\nnobody's\nlate\n"
    close(roster)


def test_taking_down_lets_go_whose_main_thread_is_free_and_ends_the_rest():
    roster, crew, _ = new_roster({"rank": 4})
    heard = Heard()
    roster.call([1], ON_MAIN, heard)
    roster.call([3], Order(2, "f", NOTHING), Heard())
    roster.on_exit(2, Exit(code=1))
    roster.stop()
    assert crew.killed == [1]
    assert crew.posted[-2:] == [("control", (0, 3), Bye()), ("data", (0, 3), Bye())]
    assert crew.is_closed
    roster.on_exit(1, Exit(signum=9))
    assert heard.by_rank == {1: ["rank 1 (pid 101): the mesh was taken down"]}
    with pytest.raises(MeshStopped, match="this mesh was taken down: spawn another one, or in a notebook bring one up"):
        roster.call([0], CALL, Heard())


def test_actors_that_live_on_ranks_that_are_not_ready_yet_clean_up_too():
    roster, crew, _ = new_roster({"rank": 3}, ready=False)
    heard = Heard()
    seq = roster.spawn_actor(Birth((0, 1), 7, "a", View((), 0, (), ()), NOTHING), heard)
    roster.on_message(0, Reply(seq), [])  # made; on rank 1 its constructor still runs, on rank 2 is none
    roster.stop()
    assert crew.killed == [2]
    assert ("data", (0, 1), Bye()) in crew.posted
    roster.on_exit(1, Exit(signum=9))
    close(roster)


def test_a_rank_that_is_started_again_is_new_in_its_place():
    roster, crew, _ = new_roster({"rank": 3})
    roster.call([1], CALL, Heard())
    roster.on_exit(1, Exit(signum=9))
    roster.revive([1])
    assert crew.respawned == [(1, 1)]
    assert roster.states[1].name == "starting" and roster.alive() == [0, 1, 2]
    with pytest.raises(SpawnError, match=r"^rank 1 not ready after 0.1 s"):
        roster.wait_ready(0.1, [1])
    roster.on_message(1, Ready(201), [])
    roster.wait_ready(0.1, [1])
    assert roster.name_of(1) == "rank 1 (pid 201)" and roster.states[1].name == "idle"


def test_a_call_of_a_dead_rank_is_lost_and_none_of_the_process_that_takes_its_place():
    """The one is told on the loop, which may come to it late."""
    roster, _, reactor = new_roster({"rank": 2})
    roster.on_exit(1, Exit(signum=9))
    former, later = Heard(), Heard()
    roster.call([1], CALL, former)
    roster.revive([1])
    roster.call([1], CALL, later)
    reactor.turn()
    assert "killed by SIGKILL" in former.by_rank[1][0] and not later.by_rank


def test_actors_are_made_again_where_they_were_in_the_order_of_old():
    roster, crew, _ = new_roster({"rank": 2})
    view = View((), 0, (), ())
    for number, ranks, on_main in ((7, (0, 1), True), (8, (0,), False), (9, (1,), False), (10, (1,), False)):
        roster.spawn_actor(Birth(ranks, number, f"a{number}", view, NOTHING, on_main=on_main), Heard())
    roster.stop_actor([1], 10, "", Heard())
    roster.on_exit(1, Exit(signum=9))
    roster.revive([1])
    roster.on_message(1, Ready(201), [])
    crew.posted.clear()
    told: list[tuple[str, list[int]]] = []

    def caller(name: str, ranks: Sequence[int]) -> Heard:
        told.append((name, list(ranks)))
        return Heard()

    roster.remake_actors([1], caller)
    made = [(lane, ranks, message.actor) for lane, ranks, message in crew.posted if isinstance(message, Spawn)]
    assert made == [("data", (1,), 7), ("control", (1,), 9)]
    assert told == [("a7", [1]), ("a9", [1])]


def test_a_mesh_that_was_taken_down_is_not_started_again():
    roster, _, _ = new_roster({"rank": 1})
    roster.stop()
    with pytest.raises(MeshStopped, match="taken down"):
        roster.revive([0])


def test_an_interrupt_while_it_is_taken_down_still_frees_everything():
    roster, crew, reactor = new_roster({"rank": 1})

    def interrupted(event: Signal, timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    reactor.wait = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        roster.stop()
    assert crew.is_closed


def test_in_a_forked_child_the_mesh_is_another_s():
    roster, crew, _ = new_roster({"rank": 1})
    roster.let_go()
    with pytest.raises(MeshStopped, match="belongs to the process"):
        roster.call([0], CALL, Heard())
    roster.stop()
    assert crew.killed == crew.posted == []


def test_the_environment_of_a_rank():
    seats = [Seat(local_rank, 4, host) for host in "ab" for local_rank in range(4)]
    env = environment({"HOME": "/h", "RANK": "9"}, standings(seats)[5])
    assert env == {
        "HOME": "/h",
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "ROLE_RANK": "5",
        "ROLE_WORLD_SIZE": "8",
    }


class Book(RuleBasedStateMachine):
    """Calls and asks to any ranks, which answer in order, die, or are dead already."""

    calls = Bundle("calls")

    def __init__(self) -> None:
        super().__init__()
        self.roster, self.crew, self.reactor = new_roster({"rank": 3})
        self.dead: set[int] = set()
        self.owed: dict[int, tuple[Heard, set[int]]] = {}
        self.queues: dict[int, list[int]] = {rank: [] for rank in range(3)}

    @rule(ranks=st.sets(st.integers(0, 2), min_size=1))
    def call(self, ranks: set[int]) -> None:
        heard = Heard()
        number = self.roster.call(sorted(ranks), CALL, heard)
        self.reactor.turn()
        self.owed[number] = (heard, set(ranks))
        for rank in ranks - self.dead:
            self.queues[rank].append(number)

    @rule(target=calls, rank=st.integers(0, 2))
    def ask(self, rank: int) -> tuple[int, int]:
        heard = Heard()
        number = self.roster.ask([rank], 1, "where", NOTHING, heard)
        self.reactor.turn()
        self.owed[number] = (heard, {rank})
        return number, rank

    @rule(asked=consumes(calls))
    def answer(self, asked: tuple[int, int]) -> None:
        number, rank = asked
        # A rank that has come back knows nothing of what it was asked in its former life.
        if rank not in self.owed[number][0].by_rank:
            self.roster.on_message(rank, Answer(number), [])
            assert self.owed[number][0].by_rank[rank] == ["reply"]

    @rule(rank=st.integers(0, 2))
    def reply(self, rank: int) -> None:
        if self.queues[rank]:
            number = self.queues[rank].pop(0)
            self.roster.on_message(rank, Reply(number), [])
            assert self.owed[number][0].by_rank[rank] == ["reply"]

    @rule(rank=st.integers(0, 2))
    def die(self, rank: int) -> None:
        if rank not in self.dead:
            self.dead.add(rank)
            self.queues[rank].clear()
            self.roster.on_exit(rank, Exit(code=3))

    @rule(rank=st.integers(0, 2))
    def come_back(self, rank: int) -> None:
        if rank in self.dead:
            self.roster.revive([rank])
            assert self.roster.states[rank].name == "starting"
            self.roster.on_message(rank, Ready(200 + rank), [])
            self.dead.discard(rank)

    @invariant()
    def who_called_the_dead_knows(self) -> None:
        for heard, ranks in self.owed.values():
            assert all(len(said) == 1 for said in heard.by_rank.values())
            assert ranks & self.dead <= set(heard.by_rank)

    @invariant()
    def the_book_says_what_is_so(self) -> None:
        for rank, state in self.roster.states.items():
            expected = "dead" if rank in self.dead else "busy" if self.queues[rank] else "idle"
            assert state.name == expected
        assert self.roster.alive() == [rank for rank in range(3) if rank not in self.dead]


TestBook = Book.TestCase
TestBook.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
