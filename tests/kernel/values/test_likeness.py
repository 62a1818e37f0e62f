"""Bytes that are equal where values are alike, although their classes were made twice."""

from __future__ import annotations

from typing import Any

import pytest

from meshbook.kernel.values.likeness import likeness
from meshbook.runtime.wire import codec

CELL = """
import abc
from enum import Enum
class C:
    def f(self): return super().__repr__() + C.__name__
    @property
    def p(self): return 1
    @staticmethod
    def s(): return C
c = C()
c.v = 3.0
class S:
    __slots__ = ("a",)
s = S()
s.a = 1
class Color(Enum):
    RED = 1
    BLUE = 2
class Base(abc.ABC):
    @abc.abstractmethod
    def g(self): ...
class Derived(Base):
    def g(self): return Derived
def f():
    class Local:
        x = 3
    return Local()
local = f()
tree = {"red": Color.RED, "kinds": [C, Derived, int]}
"""


def made(cell: str = CELL) -> dict[str, Any]:
    """The names of a cell, as another process has them."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(cell, names)
    return names


@pytest.mark.parametrize("name", ["C", "c", "s", "S", "Color", "Derived", "local", "tree"])
def test_what_two_processes_have_made_is_alike(name: str) -> None:
    one, other = made()[name], made()[name]
    assert likeness(one) == likeness(other)
    assert codec.dumps(one) != codec.dumps(other), "else there would be no need of it"


@pytest.mark.parametrize(
    ("name", "old", "new"), [("C", "return 1", "return 2"), ("c", "3.0", "4.0"), ("tree", "RED,", "BLUE,")]
)
def test_what_differs_is_not(name: str, old: str, new: str) -> None:
    assert likeness(made()[name]) != likeness(made(CELL.replace(old, new))[name])


def test_others_go_by_name() -> None:
    assert likeness(int) != likeness(float)
    assert likeness([1, "a"]) == codec.dumps([1, "a"])
