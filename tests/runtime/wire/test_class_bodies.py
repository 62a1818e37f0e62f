"""Functions that make classes: what the bodies of these read goes along."""

from __future__ import annotations

import sys
from types import FunctionType, ModuleType

import pytest

from meshbook.runtime.wire import codec

SOURCE = """
size, used, own = 3, 1, 2

def doubled(n):
    return 2 * n

def decorated(method):
    return method

def make():
    class Made:
        area = doubled(size) * size
        own = 0
        twice = own * 2

        @decorated
        def within(self):
            class Inner:
                used = used
            return Inner.used

    return Made
"""


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> FunctionType:
    """A function of a notebook where it arrives: around it is what came along."""
    notebook = ModuleType("notebook_of_classes")
    exec(SOURCE, vars(notebook))
    monkeypatch.setitem(sys.modules, notebook.__name__, notebook)
    encoded = codec.encode(notebook.make)
    return codec.decode(encoded.head, encoded.buffers)


def test_what_their_bodies_read_goes_along(make: FunctionType) -> None:
    made = make()
    assert (made.area, made.twice, made().within()) == (18, 0, 1)


def test_what_is_their_own_does_not(make: FunctionType) -> None:
    assert {"size", "doubled", "decorated", "used"} <= set(make.__globals__)
    assert "own" not in make.__globals__
