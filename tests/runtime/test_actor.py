"""Endpoints as they stand in their class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_type

import pytest

from meshbook.runtime import (
    Accumulator,
    Actor,
    Future,
    Port,
    ValueMesh,
    as_endpoint,
    concurrent_endpoint,
    endpoint,
)
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


@pytest.mark.parametrize("kind", [classmethod, staticmethod])
def test_what_is_called_without_the_actor_is_no_endpoint(kind: Any) -> None:
    with pytest.raises(
        TypeError, match=rf"method of the actor, and Typed\.plain is a {kind.__name__}: write def \.\.\.\(self"
    ):
        endpoint(kind(Typed.plain))
    thing: Any = property(lambda self: self)
    with pytest.raises(TypeError, match="method of the actor, not property <property object"):
        endpoint(thing)


class Typed(Actor):
    @endpoint
    async def word(self, n: int = 1) -> str:
        return "word" * n

    @endpoint(propagate=lambda n: n)
    async def number(self, n: float) -> float:
        return n

    @endpoint(explicit_response_port=True)
    async def answer(self, port: Port[int], n: int) -> None:
        port.send(n)

    @concurrent_endpoint
    async def aside(self) -> list[str]:
        return ["aside"]

    def plain(self, n: int) -> str:
        return str(n)


def test_to_a_type_checker_answers_are_what_the_methods_give(stage: Stage) -> None:
    typed: Typed = stage.one(Typed)
    assert assert_type(typed.word.call_one(2), Future[str]).get(10) == "wordword"
    assert assert_type(typed.word.call(n=1), Future[ValueMesh[str]]).get(10).values() == ["word"]
    assert [assert_type(future, Future[float]).get(10) for future in typed.number.stream(0.5)] == [0.5]
    assert assert_type(typed.answer.choose(3), Future[int]).get(10) == 3
    assert assert_type(typed.aside.call_one(), Future[list[str]]).get(10) == ["aside"]
    assert assert_type(as_endpoint(typed.plain).call_one(4), Future[str]).get(10) == "4"
    assert assert_type(Accumulator(typed.word, "", str.__add__).accumulate(), Future[str]).get(10) == "word"
    with pytest.raises(TypeError, match="too many positional arguments"):
        typed.aside.call(1)  # pyright: ignore[reportCallIssue]
