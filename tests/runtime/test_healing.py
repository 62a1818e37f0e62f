"""Dead ranks come back in their places: on processes and on their in-memory fake."""

from __future__ import annotations

import contextlib
import resource
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime.actor import endpoint
from meshbook.runtime.adverbs import view_of
from meshbook.runtime.channel import Channel
from meshbook.runtime.controller.gather import Gather
from meshbook.runtime.engines import inproc
from meshbook.runtime.errors import MeshStopped, SpawnError, SupervisionError
from meshbook.runtime.healing import heal, heal_mesh, heal_roster
from meshbook.runtime.mesh import roster_of
from meshbook.runtime.orders import Order
from meshbook.runtime.wire import codec
from tests.runtime.troupe import Counter, Courier, Gate

if TYPE_CHECKING:
    from tests.runtime.conftest import Bench

Until = Callable[..., Any]


def lose(mesh: Any, ranks: Sequence[int], until: Until) -> None:
    """Kill ranks and wait until that is known."""
    roster = roster_of(mesh)
    roster.kill(ranks)
    until(lambda: set(ranks) <= set(roster.dead()))


def test_a_dead_rank_comes_back_with_its_actors(bench: Bench, until: Until):
    workers = bench.workers({"rank": 3})
    assert workers.add.call(5).get(10).values() == [5, 5, 5]
    lose(workers, [1], until)
    with pytest.raises(SupervisionError, match="SIGKILL"):
        workers.add.call(1).get(10)
    healed = heal(workers)
    assert (healed.ranks, healed.failed, healed.late) == ((1,), {}, ())
    assert workers.add.call(1).get(10).values() == [6, 1, 6]  # the call that failed was none to anybody


def test_an_actor_is_made_again_with_its_arguments(bench: Bench, until: Until):
    procs = bench.up({"rank": 2})
    counters = procs.spawn("counters", Counter, 40)
    others = procs.spawn("others", Counter, value=7)
    gone = procs.spawn("gone", Counter)
    gone.stop().get(10)  # type: ignore[attr-defined]
    assert [mesh.add.call(2).get(10).values() for mesh in (counters, others)] == [[42, 42], [9, 9]]
    lose(procs, [0], until)
    assert heal_mesh(procs) is procs
    assert [mesh.add.call(1).get(10).values() for mesh in (counters, others)] == [[41, 43], [8, 10]]


def test_nothing_dead_is_nothing_done(bench: Bench):
    workers = bench.workers()
    assert heal(workers).ranks == ()
    assert roster_of(workers).groups.generation == 0


def test_living_ranks_are_restarted_on_request(bench: Bench, until: Until):
    workers = bench.workers()
    workers.add.call(3).get(10)
    future = workers.slice(rank=1).do.call("step('in')\nwhile True: pass")
    until(lambda: roster_of(workers).states[1].name == "busy")
    assert heal_roster(roster_of(workers), [1]).ranks == (1,)
    with pytest.raises(SupervisionError, match="SIGKILL"):
        future.get(10)
    assert workers.add.call(1).get(10).values() == [4, 1]


def test_a_slice_heals_its_own_ranks(bench: Bench, until: Until):
    workers = bench.workers({"rank": 3})
    lose(workers, [0, 2], until)
    assert heal(workers.slice(rank=slice(1, 3))).ranks == (2,)
    assert roster_of(workers).dead() == [0]
    assert heal(workers).ranks == (0,)
    assert workers.add.call(1).get(10).values() == [1, 1, 1]


def test_it_can_be_done_again_and_again(bench: Bench, until: Until):
    workers = bench.workers()
    for number in range(1, 4):
        lose(workers, [0], until)
        heal(workers)
        assert workers.add.call(1).get(10).values() == [1, number]


class Fussy(Counter):
    """Can be made once only."""

    def __init__(self, made: Any) -> None:
        super().__init__()
        if made.add.call_one(1).get(10) > 2:
            raise ValueError("once is enough")


def test_an_actor_that_cannot_be_made_again_is_told(bench: Bench, until: Until):
    made = bench.up({"rank": 1}).spawn("made", Counter)
    procs = bench.up({"rank": 2})
    procs.spawn("fussy", Fussy, made).initialized.get(10)
    counters = procs.spawn("counters", Counter)
    lose(procs, [1], until)
    failed = heal(procs).failed
    assert list(failed) == ["fussy"] and list(failed["fussy"]) == [1]
    assert "once is enough" in str(failed["fussy"][1])
    assert counters.add.call(1).get(10).values() == [1, 1]


def test_a_mesh_that_was_taken_down_cannot_be_healed(bench: Bench):
    workers = bench.workers()
    roster_of(workers).stop()
    with pytest.raises(MeshStopped):
        heal_roster(roster_of(workers), [0])


def test_ranks_that_knew_it_reach_the_new_one(bench: Bench, until: Until):
    procs = bench.up({"rank": 2})
    counters = procs.spawn("counters", Counter)
    courier = bench.up({"rank": 1}).spawn("courier", Courier, counters)
    assert courier.total.call_one().get(10) == 2
    lose(procs, [1], until)
    with pytest.raises(SupervisionError):
        courier.total.call_one().get(10)
    heal(procs)
    # The survivor counts on, and the new one begins; the call between counts where it went out before the courier knew.
    assert courier.total.call_one().get(10) in (2 + 1, 3 + 1)


class Owner(Courier):
    """Makes actors of its own on other ranks, and keeps them."""

    @endpoint
    def make(self, procs: Any) -> list[int]:
        self.mesh = procs.spawn("counters of the owner", Counter)
        return self.mesh.add.call(1).get(10).values()

    @endpoint
    def ask_meanwhile(self, procs: Any) -> str:
        """Call what was made, while a new actor there has not answered."""
        port, receiver = Channel[Any].open()
        held = procs.spawn("gate", Gate).hold.call_one(port)
        go_on = receiver.recv().get(10)
        with contextlib.suppress(SupervisionError):
            self.mesh.add.call(1).get(10)
        go_on.send("went on")
        return held.get(10)

    def __supervise__(self, failure: Any) -> bool:
        return True


def test_actors_that_another_rank_made_are_lost_and_new_ones_can_be_made(bench: Bench, until: Until):
    procs = bench.up({"rank": 2})
    owner = bench.up({"rank": 1}).spawn("owner", Owner)
    assert owner.make.call_one(procs).get(10) == [1, 1]
    lose(procs, [1], until)
    heal(procs)
    with pytest.raises(SupervisionError, match="SIGKILL"):
        owner.total.call_one().get(10)
    assert owner.make.call_one(procs).get(10) == [1, 1]


def test_a_call_of_an_actor_that_is_lost_fails_no_other(bench: Bench, until: Until):
    procs = bench.up({"rank": 1})
    owner = bench.up({"rank": 1}).spawn("owner", Owner)
    assert owner.make.call_one(procs).get(10) == [1]
    lose(procs, [0], until)
    heal(procs)
    assert owner.ask_meanwhile.call_one(procs).get(20) == "went on"


@pytest.mark.parametrize("bench", ["inproc", pytest.param("local", marks=pytest.mark.real)], indirect=True)
def test_a_reference_to_an_actor_that_is_no_more_is_not_waited_for(
    bench: Bench, until: Until, monkeypatch: pytest.MonkeyPatch
):
    """Whoever holds it may be told by nobody: the new rank itself says no."""
    monkeypatch.setattr(inproc, "PATIENCE", 0.3)  # processes have theirs
    procs = bench.up({"rank": 1})
    lose(procs, [0], until)
    heal(procs)
    gather = Gather(procs.roster, [0], "stray")
    view = view_of(procs._shape)  # pyright: ignore[reportPrivateUsage]
    procs.roster.call([0], Order(12345, "add", codec.encode(((), {})), view), gather)
    assert gather.wait(10)
    assert "stopped" in str(gather.errors[0])


@pytest.mark.real
@pytest.mark.parametrize("link", ["zmq", "zmq-tcp"])
def test_over_other_links(local: Bench, until: Until, link: Any):
    workers = local.workers({"rank": 2}, link=link)
    lose(workers, [0], until)
    assert heal(workers).ranks == (0,)
    assert workers.add.call(1).get(10).values() == [1, 1]


@pytest.mark.real
def test_over_a_fresh_interpreter(local: Bench, until: Until):
    workers = local.workers({"rank": 1}, how="exec")
    lose(workers, [0], until)
    assert heal(workers).ranks == (0,)
    assert workers.add.call(1).get(10).values() == [1]


def test_the_end_of_another_rank_makes_none_ready(local: Bench, until: Until):
    procs = local.up({"rank": 2})
    roster = roster_of(procs)
    lose(procs, [1], until)
    roster.revive([1])
    roster.kill([0])  # which is told before the new one is up
    until(lambda: roster.dead() == [0])
    roster.wait_ready(30, [1])
    assert roster.states[1].is_ready


def test_an_end_is_told_whole_before_another_process_comes(local: Bench, until: Until, monkeypatch: pytest.MonkeyPatch):
    """Else what is told of the old one is taken for the new one: it was ready before it was up."""
    procs = local.up({"rank": 2})
    roster = roster_of(procs)
    story: list[str] = []
    begun = threading.Event()
    tell, respawn = roster._hub.on_rank_gone, roster.crew.respawn

    def tell_slowly(*args: Any) -> None:
        begun.wait(0.3)
        tell(*args)
        story.append("told")

    def respawn_at_once(specs: Any) -> None:
        story.append("started")
        begun.set()
        respawn(specs)

    monkeypatch.setattr(roster._hub, "on_rank_gone", tell_slowly)
    monkeypatch.setattr(roster.crew, "respawn", respawn_at_once)
    lose(procs, [1], until)
    heal_roster(roster)
    assert (story, roster.states[1].is_ready) == (["told", "started"], True)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SpawnError("no room"), OSError("no file left")])
def test_ranks_that_could_not_be_started_are_dead_and_come_back_later(
    local: Bench, until: Until, monkeypatch: pytest.MonkeyPatch, error: Any
):
    """Ctrl-C strikes while a zygote imports, say; nobody else would tell of ranks that have no process."""
    workers = local.workers({"rank": 3})
    lose(workers, [0, 2], until)
    roster = roster_of(workers)
    agent: Any = roster.crew
    open_links, left = agent._wiring.open, [None, None]

    def open_two() -> Any:
        """For one rank; the other one has no luck."""
        if not left:
            raise error
        left.pop()
        return open_links()

    with monkeypatch.context() as patch, pytest.raises(type(error) if isinstance(error, Exception) else error):
        patch.setattr(agent._wiring, "open", open_two)
        heal(workers)
    until(lambda: roster.dead() == [0, 2])
    assert "was not started: " in roster.why_dead(2)
    assert heal(workers).ranks == (0, 2)
    assert workers.add.call(1).get(10).values() == [1, 1, 1]


@pytest.mark.parametrize("place", ["healing.regroup", "controller.roster.Roster.remake_actors"])
def test_who_stops_it_before_there_are_actors_finds_the_ranks_dead(
    bench: Bench, until: Until, monkeypatch: pytest.MonkeyPatch, place: str
):
    workers = bench.workers({"rank": 3})
    lose(workers, [1], until)
    roster = roster_of(workers)

    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"meshbook.runtime.{place}", pressed)
        with pytest.raises(KeyboardInterrupt):
            heal(workers)
    assert roster.dead() == [1]
    assert heal(workers).ranks == (1,)
    assert workers.add.call(1).get(10).values() == [1, 1, 1]


@pytest.mark.real
def test_ranks_for_which_there_is_no_room_stay_dead(local: Bench, monkeypatch: pytest.MonkeyPatch):
    workers = local.workers({"rank": 3})
    roster = roster_of(workers)
    with monkeypatch.context() as patch, pytest.raises(SpawnError, match="open files"):
        patch.setattr(resource, "getrlimit", lambda _: (16, 16))
        heal_roster(roster, [0, 1])
    assert roster.dead() == [0, 1]
    assert "open files" in roster.why_dead(1)
    assert heal(workers).ranks == (0, 1)
    assert workers.add.call(1).get(10).values() == [1, 1, 1]


@pytest.mark.real
def test_who_stops_waiting_for_a_host_finds_its_ranks_dead(hosts: Bench, until: Until, monkeypatch: pytest.MonkeyPatch):
    workers = hosts.workers({"rank": 2})
    lose(workers, [1], until)
    roster = roster_of(workers)

    def pressed(name: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(roster.crew, "_find", pressed)
        heal(workers)
    assert roster.dead() == [1]
    assert heal(workers).ranks == (1,)
    assert workers.add.call(1).get(10).values() == [1, 1]
