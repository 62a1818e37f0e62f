"""A rank whose user code has used up its descriptors: large values say so, and small ones come and go as ever."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from meshbook.runtime.errors import ActorError
from tests.runtime.actors import Glutton, MainGlutton, Messenger

if TYPE_CHECKING:
    from tests.runtime.conftest import Bench

pytestmark = [pytest.mark.real, pytest.mark.skipif(sys.platform != "linux", reason="large values travel inline")]

KINDS = pytest.mark.parametrize("kind", [Glutton, MainGlutton])


@pytest.fixture
def glutton(local: Bench, kind: type[Glutton]) -> Glutton:
    glutton = local.up({"rank": 1}).spawn("glutton", kind)
    glutton.eat.call_one().get(20)
    return glutton


def test_ranks_without_a_descriptor_for_a_link_talk_by_way_of_the_controller(local: Bench) -> None:
    procs = local.up({"rank": 2})
    asking, asked = procs.spawn("asking", Messenger), procs.spawn("asked", Messenger)
    procs.spawn("glutton", Glutton).slice(rank=1).eat.call_one().get(20)
    fine, full = asking.slice(rank=0), asking.slice(rank=1)
    values = ["small", bytes(100_000), 3, 4]
    calls = [fine.fetch.call_one(asked.slice(rank=1), value) for value in values]
    calls.append(full.fetch.call_one(asked.slice(rank=0), "back"))
    assert [call.get(20) for call in calls] == [*((1, value) for value in values), (0, "back")]


@KINDS
def test_a_large_answer_is_an_error_that_says_why(glutton: Glutton) -> None:
    with pytest.raises(ActorError, match=r"no room for 1\.. MB: this process gets no more .*Too many open files"):
        glutton.large.call_one().get(20)
    for value in "calls", "go", "on":
        assert glutton.echo.call_one(value).get(20) == value


@KINDS
def test_a_large_argument_is_an_error_too_until_there_is_room(glutton: Glutton) -> None:
    for _ in range(2):
        with pytest.raises(ActorError, match="Too many open files, or no memory, so nothing large can be received"):
            glutton.echo.call_one(bytes(1 << 20)).get(20)
    assert glutton.echo.call_one("small").get(20) == "small"
    glutton.let_go.call_one().get(20)
    assert len(glutton.echo.call_one(bytes(1 << 20)).get(20)) == 1 << 20
