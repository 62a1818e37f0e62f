"""Channels: a port that can be sent around, and a receiver that stays where it was made."""

from __future__ import annotations

import secrets
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .future import Future, Promise
from .here import node
from .ranks.failure import RemoteFailure, describe
from .wire import codec
from .wire.messages import Call, PortSend, Reply

if TYPE_CHECKING:
    from .node import Node
    from .ranks.drivers import AnswerTo

T = TypeVar("T")


class Port(Generic[T]):
    """Sends values to the receiver of a channel, in order, from wherever it is."""

    def __init__(self, address: tuple[int, int], number: int, rank: int = 0, once: bool = False) -> None:
        self._address = address
        self._number = number
        self._rank = rank
        self._once = once
        self._is_used = False
        self.return_undeliverable = True

    def send(self, obj: T) -> None:
        """Send a value; returns at once. A `once` port raises `RuntimeError` the second time."""
        self._send(obj, True)

    def exception(self, exc: Exception) -> None:
        """Make the receiver's `recv()` raise."""
        self._send(exc, False)

    def _send(self, value: object, ok: bool) -> None:
        if self._once and self._is_used:
            raise RuntimeError("OncePortRef already used: this port takes one value")
        payload = codec.encode(value)
        self._is_used = True
        node().send(self._address, PortSend(self._number, self._rank, ok), payload)

    def ranked(self, rank: int) -> Port[T]:
        """The same port, telling the receiver that `rank` sends."""
        return Port(self._address, self._number, rank, self._once)

    def __reduce__(self) -> Any:
        return Port, (self._address, self._number, self._rank, self._once)

    def __repr__(self) -> str:
        return f"<Port {self._number:x}{' once' if self._once else ''}>"


class ReplyPort(Generic[T]):
    """The port of an endpoint with `explicit_response_port`: its one value is the answer to the call."""

    def __init__(self, call: Call, answer: AnswerTo) -> None:
        self._call = call
        self._answer = answer
        self._is_used = False

    def send(self, obj: T) -> None:
        """Answer the call."""
        self._reply(obj, True)

    def exception(self, exc: Exception) -> None:
        """Answer the call with an error."""
        self._reply(describe(exc), False)

    @property
    def is_used(self) -> bool:
        return self._is_used

    def refuse(self, failure: RemoteFailure) -> None:
        """Answer for an actor that will not do it any more."""
        if not self._is_used:
            self._reply(failure, False)

    def _reply(self, value: object, ok: bool) -> None:
        if not self._call.wants_reply:
            return
        if self._is_used:
            raise RuntimeError("OncePortRef already used: a call is answered once")
        payload = codec.encode(value)
        self._is_used = True
        self._answer(Reply(self._call.seq, ok, 0.0, True), payload)


class PortReceiver(Generic[T]):
    """Gives the values that were sent to a port, in the order in which they came."""

    def __init__(self, node: Node, with_rank: bool = False) -> None:
        self._node = node
        self._with_rank = with_rank
        self._came: deque[tuple[int, Any, bool]] = deque()
        self._waiting: deque[Promise[Any]] = deque()
        self._lock = threading.Lock()  # values come on the loop's thread

    def recv(self) -> Future[T]:
        """The next value; a future, so that one may wait or await."""
        promise: Promise[Any] = Promise(self._node.reactor)
        with self._lock:
            if self._came:
                came = self._came.popleft()
            else:
                self._waiting.append(promise)
                promise.keep(self)  # the node knows its receivers weakly: whoever waits for one keeps it
                came = None
        if came is not None:
            self._settle(promise, came)
        return promise.future

    def ranked(self) -> PortReceiver[tuple[int, T]]:
        """The same receiver, giving `(rank, value)`."""
        self._with_rank = True
        return self  # pyright: ignore[reportReturnType] - from here on its values are pairs

    def deliver(self, rank: int, value: Any, ok: bool) -> None:
        """A value has come; on the loop's thread."""
        with self._lock:
            promise = self._waiting.popleft() if self._waiting else None
            if promise is None:
                self._came.append((rank, value, ok))
        if promise is not None:
            self._settle(promise, (rank, value, ok))

    def _settle(self, promise: Promise[Any], came: tuple[int, Any, bool]) -> None:
        rank, value, ok = came
        if not ok:
            promise.fail(value)
        else:
            promise.resolve((rank, value) if self._with_rank else value)

    def __reduce__(self) -> Any:
        raise TypeError("a PortReceiver cannot be sent: send the Port, and receive here")


class Channel(Generic[T]):
    """Makes a port and its receiver: `port, receiver = Channel[int].open()`."""

    @staticmethod
    def open(once: bool = False) -> tuple[Port[T], PortReceiver[T]]:
        """A port to be sent around, and the receiver for this process."""
        here = node()
        number = secrets.randbits(62)
        receiver: PortReceiver[T] = PortReceiver(here)
        here.ports[number] = receiver
        return Port(here.address, number, once=once), receiver

    @staticmethod
    def open_ranked(once: bool = False) -> tuple[Port[T], PortReceiver[tuple[int, T]]]:
        """The same, with a receiver that gives `(rank, value)`."""
        port, receiver = Channel[T].open(once)
        return port, receiver.ranked()
