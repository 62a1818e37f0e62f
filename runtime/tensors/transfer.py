"""Shards on their way from the ranks of one mesh to those of another: sent by an operation there, taken by one here.

Who sends waits until the shard has arrived, as the next operation may write to it. An actor takes it in that does
nothing else; so an operation waits only for what the program has issued before it, and two meshes that send to each
other do not wait for ever. For each shard something comes: where there is none, a `Poison` that says why.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from typing import Any

from ..actor import Actor, endpoint
from ..errors import MeshStopped, SupervisionError
from ..future import Future
from ..here import node
from ..scope import context, current_rank
from ..shape import Point
from .program import Poison, Spoilt


class Arrivals:
    """What has come to a rank and was not taken yet. Taken in the order of the numbers; what was left out never is."""

    def __init__(self) -> None:
        self._values: dict[int, Any] = {}
        self._last = 0
        self._end: Poison | None = None
        self._changed = threading.Condition()  # shards come on the thread of `Receiver`

    def put(self, number: int, value: Any) -> None:
        """It has come. The first counts: a rank may have died when it had sent already."""
        with self._changed:
            if number > self._last:
                self._values.setdefault(number, value)
                self._changed.notify_all()

    def take(self, number: int) -> Any:
        """Wait for it, or for the end."""
        with self._changed:
            self._changed.wait_for(lambda: number in self._values or self._end is not None)
            value = self._values.get(number, self._end)
        self.leave(number)
        return value

    def end(self, why: Poison) -> None:
        """Nothing comes any more."""
        with self._changed:
            self._end = why
            self._changed.notify_all()

    def leave(self, number: int) -> None:
        """Nobody takes it any more, nor what was sent before it."""
        with self._changed:
            self._last = number
            self._values = {later: value for later, value in self._values.items() if later > number}


_arrivals: dict[tuple[int, int], Arrivals] = {}
"""By mesh and rank, as ranks may be threads of one process."""


def own_arrivals() -> Arrivals:
    """Those of the rank on which this runs."""
    return _arrivals.setdefault(node().address, Arrivals())


class Receiver(Actor):
    """Takes in what other ranks send, while the worker of its rank computes."""

    _is_careful = True  # a shard that is refused would be waited for

    def __init__(self) -> None:
        self._arrivals = own_arrivals()  # those of before a resize end with it, which gives the rank another address

    @endpoint
    def arrive(self, number: int, value: Any) -> None:
        self._arrivals.put(number, value)

    def __cleanup__(self, exc: Exception | None) -> None:
        self._arrivals.end(Poison(0, context().actor_instance.rank.rank, "SupervisionError: the mesh was stopped", ""))


@dataclass(frozen=True, slots=True)
class Send:
    """An operation: the shard goes to the rank at the same place of another mesh, or to all that are there."""

    number: int
    """Of the transfer."""
    receivers: Any
    """The mesh of `Receiver` actors there."""

    def __call__(self, shard: Any) -> None:
        # Of a rank that is gone who asks for what it has is told; so nothing has failed here.
        with contextlib.suppress(SupervisionError):
            _wait_for(self._at(current_rank()).arrive.call_all(self.number, shard.detach().contiguous()))

    def fail(self, point: Point, poison: Poison) -> None:
        """Tell those at this place why nothing comes."""
        with contextlib.suppress(MeshStopped):
            self._at(point).arrive.broadcast(self.number, poison)

    def _at(self, point: Point) -> Any:
        return self.receivers.slice(**dict(point))


def _wait_for(answer: Future[Any]) -> None:
    """Without `get`, which keeps the loop of the rank for 20 ms more: shards of others would come so much later."""
    came = threading.Event()
    answer.add_done_callback(lambda _: came.set())
    came.wait()
    answer.get()


@dataclass(frozen=True, slots=True)
class Take:
    """An operation: what arrives on this rank under a number."""

    number: int

    def __call__(self) -> Any:
        value = own_arrivals().take(self.number)
        if isinstance(value, Poison):
            raise Spoilt(value)
        return value

    def leave(self) -> None:
        """It is not computed any more."""
        own_arrivals().leave(self.number)


@dataclass(frozen=True, slots=True)
class Receive(Take):
    """An operation: the shard that was sent."""

    device: str

    def __call__(self) -> Any:
        return Take.__call__(self).to(self.device)
