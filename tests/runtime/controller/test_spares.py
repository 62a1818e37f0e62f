"""Spares: warm processes that take the place of a rank that died."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime.actor import Actor, endpoint
from meshbook.runtime.controller.resize import resize_roster
from meshbook.runtime.controller.spares import keep_spares, spares_text
from meshbook.runtime.engines import agent
from meshbook.runtime.healing import heal
from meshbook.runtime.mesh import roster_of
from meshbook.runtime.ranks.place import here

if TYPE_CHECKING:
    from tests.runtime.conftest import Bench

pytestmark = pytest.mark.real

Until = Callable[..., Any]


class Teller(Actor):
    """Says where it stands."""

    @endpoint
    def place(self) -> tuple[int, int, int, str, dict[str, int]]:
        place = here()
        print("here")
        return os.getpid(), place.rank, place.world_size, os.environ["RANK"], dict(place.coord)


def warm(roster: Any, until: Until, count: int = 1) -> set[int]:
    """Wait until so many spares are warm; their pids."""
    keep_spares(roster, count)
    until(lambda: roster.crew.num_spares == (count, count), 30)
    return {spare.pid for spare in roster.crew._spares}


@pytest.mark.parametrize(("how", "link"), [("fork", "auto"), ("exec", "auto"), ("exec", "zmq")])
def test_a_spare_takes_the_place_of_a_rank_that_died(local: Bench, until: Until, how: str, link: Any):
    procs = local.up({"dp": 2}, how=how, link=link)
    tellers = procs.spawn("tellers", Teller)
    [spare] = warm(procs.roster, until)
    assert spares_text(procs.roster) == "1 spare"
    procs.roster.kill([1])
    until(lambda: procs.roster.dead() == [1])
    heal(procs)
    assert tellers.place.call().get(10).values()[1] == (spare, 1, 2, "1", {"dp": 1})
    until(lambda: procs.roster.logs[1].read() == "here\n")
    assert procs.roster.states[1].pid == procs.roster.crew.pids[1] == spare
    [other] = warm(procs.roster, until)  # another one has come
    assert other != spare


def test_one_that_is_not_warm_yet_is_taken_too(local: Bench, until: Until):
    procs = local.up({"dp": 1}, how="exec")
    tellers = procs.spawn("tellers", Teller)
    keep_spares(procs.roster, 1)
    procs.roster.kill([0])
    until(lambda: procs.roster.dead() == [0])
    heal(procs)
    assert tellers.place.call().get(10).values()[0][1:3] == (0, 1)


def test_a_mesh_that_grows_takes_them_first(local: Bench, until: Until, monkeypatch: pytest.MonkeyPatch):
    procs = local.up({"dp": 1}, how="exec")
    pids = warm(procs.roster, until, 2)
    leads: list[bool] = []
    encode, reactor = agent.encode_spec, procs.roster.reactor
    monkeypatch.setattr(
        agent, "encode_spec", lambda spec: (leads.append(reactor._leader == threading.get_ident()), encode(spec))[1]
    )
    assert resize_roster(procs.roster, {"dp": 4}).ranks == (1, 2, 3)
    assert pids <= set(procs.roster.crew.pids.values())
    assert leads == [True, True], "one that ends meanwhile is either a spare or a rank"


def test_a_spare_that_dies_is_nobodys_loss(local: Bench, until: Until):
    workers = local.workers({"dp": 1})
    roster = roster_of(workers)
    [spare] = warm(roster, until)
    os.kill(spare, signal.SIGKILL)
    until(lambda: roster.crew.num_spares == (0, 0))
    assert roster.dead() == [] and workers.add.call(1).get(10).values() == [1]
    assert spares_text(roster) == "0 spares"


def test_they_end_with_their_mesh(local: Bench, until: Until):
    procs = local.up({"dp": 1}, how="exec")
    keep_spares(procs.roster, 2)  # still importing
    pids = {spare.pid for spare in procs.roster.crew._spares if spare.pid}  # type: ignore[attr-defined]
    procs.roster.stop(grace=1)
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
