"""Channels: a port that can be sent around, and a receiver that stays where it was made."""

from __future__ import annotations

import secrets
import sys
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec

from .future import Future, Promise
from .here import node
from .ranks.failure import RemoteFailure, describe
from .wire import codec
from .wire.messages import Call, PortSend, Reply

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from .ranks.turns import AnswerTo
    from .wire.reactor import Reactor

T = TypeVar("T")


class Port(Generic[T]):
    """Sends values to the receiver of a channel, in order, from wherever it is."""

    return_undeliverable: bool = True

    def __init__(self, address: tuple[int, int], number: int, rank: int = 0, once: bool = False) -> None:
        self._address = address
        self._number = number
        self._rank = rank
        self._once = once
        self._is_used = False

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


class ReplyPort(Port[T]):
    """The port of an endpoint with `explicit_response_port`: its one value is the answer to the call.

    Where it is sent on, to another actor, whoever uses it there answers the call.
    """

    def __init__(self, call: Call, answer: AnswerTo) -> None:
        self._call = call
        self._answer = answer
        self._is_used = False
        self._relays: list[_Relay] = []

    @property
    def is_used(self) -> bool:
        return self._is_used

    def exception(self, exc: Exception) -> None:
        """Make the call raise; here, where nobody waits for its answer: an error is told to somebody."""
        if not self._call.wants_reply:
            raise _raisable(exc)
        super().exception(exc)

    def pass_on(self, value: object, ok: bool) -> None:
        """Answer with what somebody else has answered."""
        self._send(value, ok)

    def refuse(self, failure: RemoteFailure) -> None:
        """Answer for an actor that will not do it any more."""
        if not self._is_used:
            self._reply(failure, False)

    def _send(self, value: object, ok: bool) -> None:
        self._reply(value if ok else msgspec.structs.replace(describe(_raisable(value)), is_given=True), ok)

    def _reply(self, value: object, ok: bool) -> None:
        if not self._call.wants_reply:
            return
        if self._is_used:
            raise RuntimeError("OncePortRef already used: a call is answered once")
        payload = codec.encode(value)
        self._is_used = True
        self._answer(Reply(self._call.seq, ok, 0.0, True), payload)

    def ranked(self, rank: int) -> Port[T]:
        """Itself: the caller knows whom it has called."""
        return self

    def __reduce__(self) -> Any:
        relay = _Relay(self)
        self._relays.append(relay)  # the node knows it weakly, and it is needed for as long as the call is open
        return Port, (*_registered(relay), 0, True)

    def __repr__(self) -> str:
        return f"<Port of a call of {self._call.endpoint}>"


class _Arrival(Promise[Any]):
    """A value that may come to a port: nobody was called for it."""

    __slots__ = ()

    late = "nothing has come after {:g} s"


_Came = tuple[int, Any, bool]
"""Who has sent, what, and whether it is a value: or else it is to be raised."""


@dataclass(slots=True, eq=False)
class Place:
    """A place in the line of those who wait for the values of an inbox."""

    promise: Promise[Any]
    with_rank: bool
    came: _Came | None = None

    def settle(self, came: _Came) -> None:
        """This is its value."""
        self.came = rank, value, ok = came
        if ok:
            self.promise.resolve((rank, value) if self.with_rank else value)
        else:
            self.promise.fail(_raisable(value))


class Inbox:
    """What has come to a port and was not taken yet, and who waits for more; the node knows it by its number."""

    def __init__(self, reactor: Reactor, *, is_once: bool = False) -> None:
        self._reactor = reactor
        self._left = 1 if is_once else sys.maxsize  # how many values may be asked for
        self._came: deque[_Came] = deque()
        self._waiting: deque[Place] = deque()
        self._lock = threading.Lock()  # values come on the loop's thread

    def take(self, with_rank: bool) -> Place:
        """The next value, for whoever asks now."""
        place = Place(_Arrival(self._reactor), with_rank)
        with self._lock:
            if not self._left:
                place.promise.fail(ValueError("OncePort is already used: its receiver gives one value"))
                return place
            self._left -= 1
            came = self._came.popleft() if self._came else None
            if came is None:
                self._waiting.append(place)
                place.promise.keep(self)  # the node knows its inboxes weakly: whoever waits for one keeps it
        if came is not None:
            place.settle(came)
        return place

    def has_more(self) -> bool:
        """Whether somebody who asks now need not wait."""
        return bool(self._came) or not self._left

    def leave(self, place: Place) -> None:
        """Nobody waits at this place any more: what would have come, or has come there, is for the next."""
        with self._lock:
            if place in self._waiting:
                self._waiting.remove(place)
            elif place.came is None:  # there was none to be had
                return
            else:
                self._came.appendleft(place.came)
            self._left += 1
            count = min(len(self._waiting), len(self._came))
            others = [(self._waiting.popleft(), self._came.popleft()) for _ in range(count)]
        for other, came in others:
            other.settle(came)

    def deliver(self, rank: int, value: Any, ok: bool) -> None:
        """A value has come; on the loop's thread."""
        with self._lock:
            waiting = self._waiting.popleft() if self._waiting else None
            if waiting is None:
                self._came.append((rank, value, ok))
        if waiting is not None:
            waiting.settle((rank, value, ok))


def _raisable(value: object) -> BaseException:
    """What `Port.exception` was given, or that this can be raised by nobody."""
    if isinstance(value, BaseException):
        return value
    return TypeError(f"exceptions must derive from BaseException, not {value!r}")


class _Relay(Inbox):
    """Where the answer to a call arrives whose port was sent on: it is handed to the caller."""

    def __init__(self, port: ReplyPort[Any]) -> None:
        super().__init__(node().reactor)
        self._port = port

    def deliver(self, rank: int, value: Any, ok: bool) -> None:
        if not self._port.is_used:  # several may have got it: the first answers
            self._port.pass_on(value, ok)


class _Next(Future[T]):
    """The next value of a receiver: whoever looks first is first in line, so that one nobody looks at takes nothing.

    Who stops to look without having seen it, by a timeout or as what awaited it was cancelled, leaves the line.
    """

    __slots__ = ("_inbox", "_is_seen", "_lock", "_looks", "_place", "_with_rank")

    _inbox: Inbox
    _with_rank: bool
    _place: Place | None
    _looks: int  # by which somebody waits
    _is_seen: bool
    _lock: threading.Lock  # two threads may look at once: one of them begins

    @staticmethod
    def of(inbox: Inbox, with_rank: bool) -> _Next[Any]:
        made = cast("_Next[Any]", _Next.__new__(_Next))
        made._inbox, made._with_rank, made._place = inbox, with_rank, None
        made._looks, made._is_seen, made._lock = 0, False, threading.Lock()
        return made

    @property
    def _promise(self) -> Promise[T]:  # pyright: ignore[reportIncompatibleVariableOverride] - every look comes here
        with self._lock:
            self._place = self._place or self._inbox.take(self._with_rank)
            return self._place.promise

    def done(self) -> bool:
        if self._place is None:  # who only asks may drop this and ask for another: a value taken here would be lost
            return self._inbox.has_more()
        return super().done()

    def get(self, timeout: float | None = None) -> T:
        __tracebackhide__ = True
        self._look()
        try:
            value = super().get(timeout)
            self._is_seen = True
            return value
        except BaseException as error:
            self._is_seen = self._is_seen or error is self._promise.error
            raise
        finally:
            self._look_away()

    def exception(self, timeout: float | None = None) -> Exception | None:
        self._look()
        try:
            found = super().exception(timeout)
            self._is_seen = self._is_seen or found is self._promise.error
            return found
        finally:
            self._look_away()

    def add_done_callback(self, call: Callable[[Future[T]], object]) -> None:
        self._look()  # for good: the callback has it when it comes
        super().add_done_callback(call)

    def as_asyncio(self) -> asyncio.Future[T]:
        twin = super().as_asyncio()
        self._look()
        twin.add_done_callback(self._awaited)
        return twin

    def _awaited(self, twin: asyncio.Future[T]) -> None:
        self._is_seen = self._is_seen or not twin.cancelled()
        self._look_away()

    def _look(self) -> None:
        with self._lock:
            self._looks += 1

    def _look_away(self) -> None:
        with self._lock:
            self._looks -= 1
            if not (self._looks or self._is_seen or self._place is None):
                place, self._place = self._place, None
                self._inbox.leave(place)

    def __repr__(self) -> str:
        return "<Future: waiting>" if self._place is None else super().__repr__()


class PortReceiver(Generic[T]):
    """Gives the values that were sent to a port, in the order in which they came."""

    def __init__(self, inbox: Inbox, with_rank: bool = False) -> None:
        self._inbox = inbox
        self._with_rank = with_rank

    def recv(self) -> Future[T]:
        """The next value; a future, so that one may wait or await. Of several, the first to be looked at is next."""
        return _Next.of(self._inbox, self._with_rank)

    def ranked(self) -> PortReceiver[tuple[int, T]]:
        """A receiver of the same values that gives `(rank, value)`."""
        return PortReceiver(self._inbox, True)

    def __reduce__(self) -> Any:
        raise TypeError("a PortReceiver cannot be sent: send the Port, and receive here")


class Channel(Generic[T]):
    """Makes a port and its receiver: `port, receiver = Channel[int].open()`."""

    @staticmethod
    def open(once: bool = False) -> tuple[Port[T], PortReceiver[T]]:
        """A port to be sent around, and the receiver for this process."""
        inbox = Inbox(node().reactor, is_once=once)
        return Port(*_registered(inbox), once=once), PortReceiver(inbox)

    @staticmethod
    def open_ranked(once: bool = False) -> tuple[Port[T], PortReceiver[tuple[int, T]]]:
        """The same, with a receiver that gives `(rank, value)`."""
        port, receiver = Channel[T].open(once)
        return port, receiver.ranked()


def _registered(inbox: Inbox) -> tuple[tuple[int, int], int]:
    """Where an inbox is from now on reached: this process, and a number."""
    here = node()
    number = secrets.randbits(62)
    here.ports[number] = inbox
    return here.address, number
