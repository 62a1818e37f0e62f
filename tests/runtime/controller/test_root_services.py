"""What the root does for actors on ranks: for one of them while it works for another."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime import get_or_spawn_controller
from meshbook.runtime.controller import root_services
from meshbook.runtime.controller.root_services import ask_root
from meshbook.runtime.engines.spec import HOME
from meshbook.runtime.errors import SupervisionError
from meshbook.runtime.here import node
from meshbook.runtime.mesh import roster_of
from tests.runtime.families import Owner
from tests.runtime.troupe import Counter, Courier

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage


@pytest.mark.parametrize("trouble", [None, OSError("no debugger here")])
def test_others_are_served_while_a_debugger_is_on_its_way(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, trouble: Exception | None
) -> None:
    come = threading.Event()

    class Porter:
        @staticmethod
        def bring_debugger(roster: Any) -> None:
            assert come.wait(20)
            if trouble:
                raise trouble

    monkeypatch.setattr(root_services, "porter", lambda: Porter)
    mesh = roster_of(stage.shared(r=2)).mesh
    brought = ask_root(node(), "bring_debugger", mesh)
    assert ask_root(node(), "site_of", (mesh, 0)).get(5) == HOME
    assert not brought.done()
    come.set()
    if trouble is None:
        assert brought.get(5) is None
    else:
        with pytest.raises(OSError, match="no debugger here"):
            brought.get(5)
    with pytest.raises(KeyError):
        ask_root(node(), "bring_debugger", 4711).get(5)
    assert ask_root(node(), "site_of", (mesh, 0)).get(5) == HOME, "the services live on"


def test_who_stops_a_mesh_waits_also_where_its_ranks_answer_before_it_is_noted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted, begin = threading.Event(), root_services._Lease.begin  # pyright: ignore[reportPrivateUsage]

    def begin_late(lease: Any, procs: Any) -> None:
        assert noted.wait(20)
        begin(lease, procs)

    monkeypatch.setattr(root_services._Lease, "begin", begin_late)  # pyright: ignore[reportPrivateUsage]
    owner = stage.one(Owner)
    kids = owner.adopt_procs.call_one(Counter, 5).get(20)
    assert kids.add.call(1).get(10).values() == [6, 6]
    dismissed = owner.dismiss.call_one()
    with pytest.raises(TimeoutError):
        dismissed.get(0.1)
    noted.set()
    dismissed.get(20)
    with pytest.raises(SupervisionError):
        kids.add.call(1).get(10)


def test_controllers_are_one_for_all(stage: Stage, leaks: Any, until: Any, capfd: pytest.CaptureFixture[str]) -> None:
    name = f"one for all {stage.engine}"
    first = get_or_spawn_controller(name, Counter, 5).get(10)
    assert first.add.call_one(1).get(10) == 6
    again = get_or_spawn_controller(name, Counter, 100).get(10)
    assert again.add.call_one(1).get(10) == 7
    assert stage.one(Courier).controller.call_one(name, 100).get(10) == 8
    first.fail.broadcast("the controller")
    until(lambda: "ValueError: the controller" in capfd.readouterr().err)
    with pytest.raises(ValueError, match=f"(?s)Failure on {name}.*the controller"):
        get_or_spawn_controller(name, Counter).get(10)
    assert stage.faults.empty(), "the program goes on: who asks is told"
    assert get_or_spawn_controller(name=name + "!", Class=Counter).get(10).add.call_one(1).get(10) == 1
    leaks.allow_what_stands()  # they live as long as the client does
