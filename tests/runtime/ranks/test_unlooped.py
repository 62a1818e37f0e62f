"""Event loops as the code of an actor finds them: plain code finds none, be its actor async or not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime import Actor, Channel, MeshFailure, Port, as_endpoint, endpoint, this_proc
from tests.runtime.troupe import Counter

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Plain(Actor):
    """Has no endpoints, and so is async."""

    def __init__(self, told: Port[Any]) -> None:
        self.told = told
        told.send(("init", _has_loop()))

    def look(self) -> bool:
        return _has_loop()

    def run(self) -> bool:
        return asyncio.run(self.look_async())

    async def look_async(self) -> bool:
        await asyncio.sleep(0)
        return _has_loop()

    def adopt(self) -> int:
        kid: Any = this_proc().spawn("kid", Counter)
        count = kid.add.call_one(1).get(10)
        kid.fail.broadcast("to nobody")
        return count

    def __supervise__(self, failure: MeshFailure) -> bool:
        self.told.send(("supervise", _has_loop()))
        return True

    async def __cleanup__(self, exc: Exception | None) -> None:
        self.told.send(("cleanup", _has_loop()))


class Async(Plain):
    @endpoint
    async def other(self) -> None: ...


class Sync(Actor):
    look, run, look_async = Plain.look, Plain.run, Plain.look_async

    @endpoint
    def other(self) -> None: ...


@pytest.mark.parametrize("cls", [Plain, Async])
def test_an_actor_without_sync_endpoints_has_a_loop(stage: Stage, cls: Any) -> None:
    port, told = Channel[Any].open()
    actor = stage.one(cls, port)
    assert told.recv().get(10) == ("init", True)
    assert as_endpoint(actor.look_async).call_one().get(10) is True
    assert as_endpoint(actor.look).call_one().get(10) is False
    assert as_endpoint(actor.run).call_one().get(10) is True
    assert as_endpoint(actor.adopt).call_one().get(10) == 1
    assert told.recv().get(10) == ("supervise", False)
    actor.stop().get(10)
    assert told.recv().get(10) == ("cleanup", True)


def test_one_with_sync_endpoints_has_none(stage: Stage) -> None:
    actor = stage.one(Sync)
    assert as_endpoint(actor.look).call_one().get(10) is False
    assert as_endpoint(actor.run).call_one().get(10) is True
    with pytest.raises(
        TypeError, match=r"sync\.look_async is an async def method, but its actor's endpoints are all def"
    ):
        as_endpoint(actor.look_async).call_one().get(10)
