"""Meshes that grow and shrink: on processes and on their in-memory fake."""

from __future__ import annotations

import random
import resource
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime.actor import Actor, endpoint
from meshbook.runtime.controller import resize
from meshbook.runtime.controller.resize import Dropped, resize_roster
from meshbook.runtime.engines.spec import seats_here
from meshbook.runtime.errors import MeshError, MeshStopped, SpawnError, SupervisionError
from meshbook.runtime.healing import heal_roster
from meshbook.runtime.mesh import ProcMesh, roster_of
from meshbook.runtime.ranks.place import here
from meshbook.runtime.session import specs_for
from meshbook.runtime.shape import Shape
from tests.runtime.troupe import Counter, Courier

if TYPE_CHECKING:
    from tests.runtime.conftest import Bench

Until = Callable[..., Any]


class Teller(Actor):
    """Says where it stands."""

    @endpoint
    def place(self) -> tuple[int, int, dict[str, int]]:
        place = here()
        return place.rank, place.world_size, dict(place.coord)


kept: list[Any] = []
"""On a rank: outlives the actors there."""


class Keeper(Actor):
    """Keeps what another actor gives it."""

    @endpoint
    def take(self, giver: Any, value: float) -> None:
        import numpy as np

        kept.append(giver.echo.call_one(np.full(100_000, value)).get())

    @endpoint
    def first(self) -> float:
        return float(kept[0].mean())


def view_of_all(mesh: Any) -> ProcMesh:
    """The mesh as it is now."""
    return ProcMesh(mesh.roster, Shape.row_major(mesh.roster.axes), is_owned=False)


def places(mesh: Any) -> list[tuple[int, int, dict[str, int]]]:
    tellers = view_of_all(mesh).spawn("tellers", Teller)
    found = tellers.place.call().get(10).values()
    tellers.stop().get(10)  # type: ignore[attr-defined]
    return found


def test_growing_the_outermost_axis_leaves_all_that_was_there(bench: Bench):
    procs = bench.up({"dp": 2})
    counters = procs.spawn("counters", Counter, 40)
    assert counters.add.call(1).get(10).values() == [41, 41]
    resized = resize_roster(procs.roster, {"dp": 4})
    assert (resized.ranks, resized.dropped, resized.failed) == ((2, 3), (), {})
    assert counters.add.call(1).get(10).values() == [42, 42]
    assert places(procs) == [(rank, 4, {"dp": rank}) for rank in range(4)]


def test_a_resize_that_fails_on_the_loop_ends_there(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    procs = bench.up({"dp": 2})

    def fail(kept: Any) -> None:
        raise OSError("the host is gone")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="the host is gone"):
        patch.setattr(procs.roster.crew, "renumber", fail)
        resize_roster(procs.roster, {"dp": 3})
    assert (procs.roster.axes, len(procs.roster.specs)) == ({"dp": 2}, 2)
    assert resize_roster(procs.roster, {"dp": 3}).ranks == (2,)


def test_shrinking_says_what_it_dropped_and_old_views_of_it_fail(bench: Bench, until: Until):
    procs = bench.up({"dp": 3})
    counters = procs.spawn("counters", Counter)
    counters.add.call(1).get(10)
    pid = procs.roster.states[2].pid
    resized = resize_roster(procs.roster, {"dp": 2})
    assert (resized.ranks, resized.dropped) == ((), (Dropped(2, {"dp": 2}, pid, was_dead=False),))
    assert counters.slice(dp=slice(0, 2)).add.call(1).get(10).values() == [2, 2]
    for view in (counters, counters.slice(dp=2)):
        with pytest.raises(SupervisionError, match=r"rank 2 \(dp=2.*was dropped: the mesh was resized to dp=2"):
            view.add.call(1).get(10)
    assert places(procs) == [(0, 2, {"dp": 0}), (1, 2, {"dp": 1})]
    assert sorted(procs.roster.states) == [0, 1] and procs.roster.dead() == []


def test_a_rank_that_comes_where_one_was_dropped_is_another_one(bench: Bench):
    procs = bench.up({"dp": 2})
    counters = procs.spawn("counters", Counter)
    counters.add.call(5).get(10)
    resize_roster(procs.roster, {"dp": 1})
    resize_roster(procs.roster, {"dp": 2})
    for _ in range(2):
        for view in (counters.slice(dp=1), counters):
            with pytest.raises(SupervisionError, match=r"rank 1 .*: its rank was dropped by a resize") as refused:
                view.add.call(1).get(2)  # and does not wait there for an actor that may be on its way
            assert refused.value.raised_on is None  # there is nothing to look into
        assert heal_roster(procs.roster, [1]).ranks == (1,)
    assert counters.slice(dp=0).add.call(1).get(10).values() == [6]  # whom the refused calls did not reach


@pytest.mark.parametrize("size", [1, 3])
def test_an_inner_axis_renumbers_and_no_old_view_reaches_a_wrong_rank(bench: Bench, size: int):
    procs = bench.up({"dp": 2, "tp": 2})
    counters = procs.spawn("counters", Counter)
    pids = {rank: state.pid for rank, state in procs.roster.states.items()}
    resized = resize_roster(procs.roster, {"tp": size})
    for call in (lambda: counters.add.call(1), lambda: procs.spawn("more", Counter)):
        with pytest.raises(MeshStopped, match=f"resized to dp=2 tp={size}, which gave ranks other numbers"):
            call()
    assert places(procs) == [(r, 2 * size, {"dp": r // size, "tp": r % size}) for r in range(2 * size)]
    now = {rank: state.pid for rank, state in procs.roster.states.items()}
    assert all(now[new] == pids[old] for old, new in resized.plan.kept.items())
    assert repr(procs) == "<ProcMesh {dp=2,tp=2}, stopped>"


def test_what_a_rank_was_given_stays_as_it_is_when_it_gets_another_number(local: Bench):
    """It lies in the memory of who gave it, who is told that the rank of the old number is not there any more."""
    giver = local.up({"rank": 1}).spawn("giver", Counter)
    procs = local.up({"dp": 2, "tp": 1})
    procs.slice(dp=1).spawn("keepers", Keeper).take.call_one(giver, 1.0).get(10)
    resize_roster(procs.roster, {"tp": 2})
    keepers = view_of_all(procs).spawn("keepers", Keeper)
    keepers.slice(dp=0, tp=0).take.call_one(giver, 2.0).get(10)
    assert keepers.slice(dp=1, tp=0).first.call_one().get(10) == 1.0


def test_other_ranks_that_hold_an_old_view_are_told(bench: Bench, until: Until):
    procs = bench.up({"dp": 2, "tp": 1})
    courier = bench.up({"rank": 1}).spawn("courier", Courier, procs.spawn("counters", Counter))
    assert courier.total.call_one().get(10) == 2
    resize_roster(procs.roster, {"dp": 1, "tp": 2})
    with pytest.raises(SupervisionError, match="resized to dp=1 tp=2, which gave ranks other numbers"):
        courier.total.call_one().get(10)


def test_dead_ranks_that_stay_come_back(bench: Bench, until: Until):
    procs = bench.up({"dp": 2})
    counters = procs.spawn("counters", Counter)
    counters.add.call(5).get(10)
    procs.roster.kill([0])
    until(lambda: procs.roster.dead() == [0])
    assert resize_roster(procs.roster, {"dp": 3}).ranks == (0, 2)
    assert counters.add.call(1).get(10).values() == [1, 6]


def test_dead_ranks_that_go_are_not_waited_for(bench: Bench, until: Until):
    procs = bench.up({"dp": 2})
    procs.roster.kill([1])
    until(lambda: procs.roster.dead() == [1])
    [dropped] = resize_roster(procs.roster, {"dp": 1}).dropped
    assert dropped.was_dead
    assert places(procs) == [(0, 1, {"dp": 0})]


def test_a_busy_rank_that_stays_is_named_and_nothing_is_done(bench: Bench, until: Until):
    workers = bench.workers({"dp": 2, "tp": 1})
    roster = roster_of(workers)
    future = workers.slice(dp=0).do.call("step('in')\nwhile True: pass")
    until(lambda: roster.states[0].name == "busy")
    with pytest.raises(MeshError, match=r"^cannot resize now: rank 0 \(dp=0,tp=0.*\) is busy: wait, or stop"):
        resize_roster(roster, {"dp": 3})
    assert roster.axes == {"dp": 2, "tp": 1} and roster.alive() == [0, 1]
    roster.kill([0])
    with pytest.raises(SupervisionError):
        future.get(10)


def test_a_busy_rank_that_goes_is_killed(bench: Bench, until: Until):
    workers = bench.workers({"dp": 2})
    roster = roster_of(workers)
    future = workers.slice(dp=1).do.call("step('in')\nwhile True: pass")
    until(lambda: roster.states[1].name == "busy")
    resize_roster(roster, {"dp": 1})
    with pytest.raises(SupervisionError, match="was dropped"):
        future.get(10)


def test_who_stops_it_before_there_are_actors_finds_the_new_ranks_dead(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    procs = bench.up({"dp": 2})
    counters = procs.spawn("counters", Counter, 40)
    counters.initialized.get(10)
    roster = procs.roster

    def pressed(timeout: float | None, ranks: Any = None) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(roster, "wait_ready", pressed)
        resize_roster(roster, {"dp": 4})
    assert roster.dead() == [2, 3]
    assert heal_roster(roster).ranks == (2, 3)
    assert counters.add.call(1).get(10).values() == [41, 41]
    assert places(procs) == [(rank, 4, {"dp": rank}) for rank in range(4)]


def test_who_stops_it_before_the_sizes_are_others_gets_the_dropped_ranks_back(
    bench: Bench, until: Until, monkeypatch: pytest.MonkeyPatch
):
    workers = bench.workers({"dp": 2})
    roster = roster_of(workers)

    def pressed(*_: Any) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("meshbook.runtime.controller.resize.wait_until", lambda roster, done, _: done() or pressed())
        resize_roster(roster, {"dp": 1})
    until(lambda: roster.dead() == [1])
    assert heal_roster(roster).ranks == (1,)
    assert workers.add.call(1).get(10).values() == [1, 1]
    roster.kill([1])
    with pytest.raises(SupervisionError) as caught:
        workers.do.call("while True: pass").get(10)
    assert "resized" not in str(caught.value)


def test_sizes_that_make_no_sense(bench: Bench):
    procs = bench.up({"dp": 2})
    with pytest.raises(ValueError, match="no axis 'tp'"):
        resize_roster(procs.roster, {"tp": 2})
    procs.roster.stop()
    with pytest.raises(MeshStopped):
        resize_roster(procs.roster, {"dp": 3})


@pytest.mark.real
def test_more_ranks_than_descriptors_allow_changes_nothing(local: Bench, monkeypatch: pytest.MonkeyPatch):
    procs = local.up({"dp": 1})
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    with pytest.raises(SpawnError, match="open files"):
        resize_roster(procs.roster, {"dp": 4096})
    assert places(procs) == [(0, 1, {"dp": 0})]


@pytest.mark.real
@pytest.mark.parametrize("link", ["zmq", "zmq-tcp"])
def test_over_other_links(local: Bench, link: Any):
    procs = local.up({"dp": 1, "tp": 2}, link=link)
    resize_roster(procs.roster, {"dp": 2, "tp": 1})
    resize_roster(procs.roster, {"tp": 2})
    assert places(procs) == [(r, 4, {"dp": r // 2, "tp": r % 2}) for r in range(4)]


def test_any_number_of_times(bench: Bench):
    """The state of every rank is its own for as long as its coordinates are in the mesh."""
    chance = random.Random(20)
    procs = bench.up({"a": 1, "b": 2})
    roster = procs.roster
    pids: dict[tuple[int, int], int] = {}
    for _ in range(20):
        before = roster.axes
        pids = {(r // before["b"], r % before["b"]): id(log) for r, log in roster.logs.items()}
        sizes = {axis: chance.randint(1, 3) for axis in chance.sample(["a", "b"], chance.randint(1, 2))}
        resized = resize_roster(roster, sizes)
        after = {"a": 0, "b": 0} | before | sizes
        assert roster.axes == after == resized.plan.new
        now = {(r // after["b"], r % after["b"]): id(log) for r, log in roster.logs.items()}
        assert all(now[point] == pids[point] for point in now.keys() & pids.keys())
        b = after["b"]
        assert places(procs) == [(r, after["a"] * b, {"a": r // b, "b": r % b}) for r in range(after["a"] * b)]


def test_ranks_that_come_new_take_gpus_of_their_own_or_share_those_that_there_are() -> None:
    stayed = {0: specs_for({"rank": 2}, device="cuda")[1]}
    assert resize._devices(stayed, seats_here(3), "cuda", 0) == ["cuda:1", "cuda:0", "cuda:2"]
    assert resize._devices(stayed, seats_here(4), "cuda", 2) == ["cuda:1", "cuda:1", "cuda:0", "cuda:1"]
    assert resize._devices({}, seats_here(2), "cpu", 0) == ["cpu", "cpu"]
