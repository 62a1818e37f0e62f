"""What a module defines anew comes to those who had it by name."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from meshbook.kernel.sources.heirs import estate, hand_over

LAYERS = """
import enum, math
class Layer: pass
class Named(Layer): pass
class Kind(enum.Enum):
    WIDE = 1
class Failed(Exception): pass
def act(): pass
width = 1
gone = {}
"""
USES = "class Net(layers.Layer, Mixed): pass\nclass Small(layers.Failed): __slots__ = ()"


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    layers, uses = ModuleType("layers"), ModuleType("uses")
    exec(LAYERS.format("lambda: 0"), vars(layers))
    vars(uses).update(__file__="/work/uses.py", layers=layers, Mixed=type("Mixed", (), {}))
    vars(uses).update({name: vars(layers)[name] for name in ("Layer", "Kind", "act", "width", "gone")})
    exec(USES, vars(uses))
    monkeypatch.setitem(sys.modules, "uses", uses)
    return layers, uses


def test_who_has_it_by_name_or_as_a_base_has_the_new_one(modules: tuple[Any, Any]) -> None:
    layers, uses = modules
    names = {"Layer": layers.Layer, "mine": layers.act, "other": 1}
    former, kind = estate(layers), layers.Kind
    exec(LAYERS.format("None"), vars(layers))
    hand_over(former, layers, names)
    assert names == {"Layer": layers.Layer, "mine": layers.act, "other": 1}
    assert (uses.Layer, uses.act) == (layers.Layer, layers.act)
    assert isinstance(uses.Net(), layers.Layer) and issubclass(uses.Small, layers.Failed)
    assert uses.Net.__bases__ == (layers.Layer, uses.Mixed)
    assert uses.Kind is kind, "its members are where the user has them"
    assert uses.gone is not layers.gone and layers.gone is None, "only what is of the same kind"


def test_where_nothing_was_renewed_all_stays(modules: tuple[Any, Any]) -> None:
    layers, uses = modules
    names = dict(vars(uses))
    hand_over(estate(layers), layers, names)
    assert names == dict(vars(uses))
