"""A rank whose user code has used up its descriptors: large values say so, and small ones come and go as ever."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from meshbook.runtime.errors import ActorError, SupervisionError
from tests.runtime.actors import Glutton, MainGlutton

if TYPE_CHECKING:
    from tests.runtime.conftest import Bench

pytestmark = [pytest.mark.real, pytest.mark.skipif(sys.platform != "linux", reason="large values travel inline")]

KINDS = pytest.mark.parametrize("kind", [Glutton, MainGlutton])


@pytest.fixture
def glutton(local: Bench, kind: type[Glutton]) -> Glutton:
    glutton = local.up({"rank": 1}).spawn("glutton", kind)
    glutton.eat.call_one().get(20)
    return glutton


@KINDS
def test_a_large_answer_is_an_error_that_says_why(glutton: Glutton) -> None:
    with pytest.raises(ActorError, match=r"no room for 1\.. MB: this process gets no more .*Too many open files"):
        glutton.large.call_one().get(20)
    for value in "calls", "go", "on":
        assert glutton.echo.call_one(value).get(20) == value


@KINDS
def test_a_large_argument_ends_the_rank_with_the_reason(glutton: Glutton) -> None:
    with pytest.raises(SupervisionError, match="Too many open files, so nothing large can be received"):
        glutton.echo.call_one(bytes(1 << 20)).get(20)
    for size in 1, 1 << 20:
        with pytest.raises(SupervisionError, match="rank 0"):
            glutton.echo.call_one(bytes(size)).get(20)
