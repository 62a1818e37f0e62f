"""What the root does for actors on ranks: for one of them while it works for another."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime import root_services
from meshbook.runtime.engines.spec import HOME
from meshbook.runtime.here import node
from meshbook.runtime.mesh import roster_of
from meshbook.runtime.root_services import ask_root

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
