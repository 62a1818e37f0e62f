"""Endpoints as they stand in their class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from meshbook.runtime import endpoint
from tests.runtime.troupe import Counter

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage


class Adder(Counter):
    @endpoint
    def __call__(self, n: int) -> int:
        return self.value + n

    @endpoint
    def __getitem__(self, n: int) -> int:
        return self.value * n

    @endpoint
    def rank(self) -> int:
        return super().rank._method(self) + 100  # pyright: ignore


def test_one_is_called_like_its_actor_and_one_asks_its_parent(stage: Stage) -> None:
    adder = stage.one(Adder, 3)
    assert adder.__call__.call_one(4).get(10) == 7
    assert adder.__getitem__.call_one(4).get(10) == 12
    assert adder.rank.call_one().get(10) == 100


def test_an_actor_cannot_call_its_endpoints_as_methods() -> None:
    with pytest.raises(TypeError, match="add is an endpoint, which its actor cannot call as a method: put what add"):
        Counter(1).add(1)  # type: ignore[operator]
    counter = Counter(1)
    assert type(counter).add.method(counter, 1) == 2  # type: ignore[attr-defined]
