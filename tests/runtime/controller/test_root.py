"""The root node: ranks that ask for meshes which are just being started."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime.mesh import roster_of
from meshbook.runtime.numbers import new_mesh
from meshbook.runtime.wire.messages import Connect, Died

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshbook.runtime.engines.base import Party
    from tests.runtime.conftest import Bench


class Late(dict[int, Any]):
    """The meshes of a root; the first time that one is missed, it comes as soon as it can."""

    def __init__(self, known: dict[int, Any], arrive: Callable[[], object]) -> None:
        super().__init__(known)
        self.coming = threading.Thread(target=arrive)

    def get(self, mesh: int, default: Any = None) -> Any:
        found = super().get(mesh, default)
        if found is None and self.coming.ident is None:
            self.coming.start()
            self.coming.join(0.5)
        return found


def test_a_mesh_that_comes_while_it_is_asked_for_is_linked(
    inproc: Bench, until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    number, linked = new_mesh(), list[int]()
    asking = roster_of(inproc.up({"rank": 1}))

    def link(one: Party, other: Party) -> None:
        linked.append(other.mesh)

    monkeypatch.setattr(inproc.engine, "introduce", link)
    late = Late(inproc.root.rosters, lambda: inproc.up({"rank": 1}, mesh=number))
    monkeypatch.setattr(inproc.root, "rosters", late)
    inproc.root.on_other(asking, 0, Connect(number, 0), [])
    late.coming.join()
    until(lambda: linked == [number])


def test_a_mesh_that_comes_while_a_death_is_told_keeps_it_from_nobody(
    inproc: Bench, until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    told, come = list[int](), list[Any]()
    dying, *others = (roster_of(inproc.up({"rank": 2})) for _ in range(3))

    def tell(mesh: int, message: object) -> None:
        if isinstance(message, Died):
            if not come:
                come.append(None)
                coming = threading.Thread(target=lambda: come.append(inproc.begin({"rank": 1})))
                coming.start()
                coming.join()
            told.append(mesh)

    for roster in others:
        monkeypatch.setattr(roster, "post_control", lambda rank, message, *rest, at=roster.mesh: tell(at, message))
    dying.kill([0])
    until(lambda: len(told) == 4)
    assert sorted(told) == sorted([others[0].mesh, others[1].mesh] * 2)
