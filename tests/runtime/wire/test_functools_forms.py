"""Caches and cached properties of functions that no other process can import."""

from __future__ import annotations

import functools
import math
import sys
import types

import pytest

from meshbook.runtime.wire.codec import dumps, loads

MADE_HERE = """
import functools

@functools.lru_cache(maxsize=7, typed=True)
def fib(n):
    "Of Fibonacci."
    return n if n < 2 else fib(n - 1) + fib(n - 2)

class Model:
    @functools.cached_property
    def size(self):
        "How large."
        return 3

    @functools.cache
    def twice(self, x):
        return 2 * x
"""


@functools.cache
def cached_here(x: int) -> int:
    return x


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("made_here")
    monkeypatch.setitem(sys.modules, "made_here", module)
    exec(MADE_HERE, module.__dict__)
    return module


def test_a_cache_arrives_empty_and_calls_itself(made: types.ModuleType) -> None:
    assert made.fib(10) == 55
    came = loads(dumps(made.fib))
    assert came is not made.fib
    assert came.cache_parameters() == {"maxsize": 7, "typed": True}
    assert came.cache_info().currsize == 0
    assert (came(10), came.cache_info().hits, came.__name__, came.__doc__) == (55, 8, "fib", "Of Fibonacci.")


def test_a_class_has_them(made: types.ModuleType) -> None:
    data = dumps(made.Model())
    del sys.modules["made_here"]
    model = loads(data)
    assert (model.size, model.size, model.twice(4)) == (3, 3, 8)
    assert vars(model) == {"size": 3}
    assert type(model).size.__doc__ == "How large."


def test_a_cache_that_can_be_imported_goes_by_its_name() -> None:
    assert loads(dumps(cached_here)) is cached_here


def test_what_has_no_name_may_be_cached() -> None:
    assert loads(dumps(functools.lru_cache(functools.partial(math.pow, 2))))(3) == 8
    assert loads(dumps(functools.lru_cache(math.sqrt)))(4) == 2
