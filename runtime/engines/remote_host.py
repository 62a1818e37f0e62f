"""The controller's handle on the agent of another host: what it is told and asked, and whether it is still there."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ..errors import LinkClosed, SpawnError
from ..system.proc import Stat
from ..wire.codec import Encoded
from ..wire.lane import Frames, Lane
from ..wire.link import NearLink
from ..wire.messages import AnyMessage, Beat, Bye, Done, Gone, Heard, Hello, Renumbered, Replies, Said
from ..wire.reactor import Reactor, report
from .remote_agent import PACE, PIECE

News = Heard | Replies | Said | Gone | Renumbered
"""What an agent tells of its ranks."""

SILENCE = 4.0
"""Seconds without a sign of life after which a host is lost. A process that ends is seen at the next beat."""


class Branch(Protocol):
    """The ranks of one mesh on one host, as far as they are told of what comes."""

    def on_news(self, host: RemoteHost, news: News, frames: Frames) -> None: ...

    def on_host_lost(self, host: RemoteHost) -> None: ...


@dataclass(slots=True)
class Pending:
    """A question that the agent has not answered yet."""

    reactor: Reactor
    came: threading.Event = field(default_factory=threading.Event)
    done: Done | None = None
    frames: Frames = field(default_factory=list["bytearray | memoryview"])

    def wait(self, timeout: float | None = None) -> Done:
        """The answer. Raises `SpawnError` where it is one of trouble, or does not come in `timeout` seconds."""
        if not self.reactor.wait(self.came, timeout):
            raise SpawnError(f"no answer from the agent within {timeout:g} s")
        assert self.done is not None
        if self.done.trouble:
            raise SpawnError(self.done.trouble)
        return self.done

    def resolve(self, done: Done, frames: Frames) -> None:
        self.done, self.frames = done, frames
        self.reactor.announce(self.came)


class RemoteHost:
    """One host. `greet` says what is wrong with an agent that says hello, if anything; `last_words` gives what its
    launcher has said; `on_lost` is called once."""

    def __init__(
        self,
        reactor: Reactor,
        index: int,
        name: str,
        link: NearLink,
        greet: Callable[[RemoteHost, Hello], str],
        on_lost: Callable[[RemoteHost], object],
        last_words: Callable[[RemoteHost], str],
    ) -> None:
        self.index = index
        self.name = name
        self.hello: Hello | None = None
        self.settled = threading.Event()
        """Set when it is there, or lost."""
        self.trouble = ""
        """Why it is lost; empty while it is not."""
        self.stats: dict[int, dict[int, Stat]] = {}
        """By crew, what was last seen of its ranks."""
        self.spares: Mapping[int, tuple[int, int]] = {}
        """By crew, how many spares wait here, and how many of them have done their imports."""
        self.branches: dict[int, Branch] = {}
        self._reactor = reactor
        self._link = link
        self._greet = greet
        self._on_lost = on_lost
        self._last_words = last_words
        self._numbers = itertools.count(1)
        self._pending: dict[int, Pending] = {}
        self._asking = threading.Lock()  # a question must not be put while the host is being given up
        self._num_silent = 0
        link.largest = PIECE
        self._lane = Lane(link)
        link.watch(reactor, self._on_lane)

    def post(self, message: AnyMessage, payload: Encoded | None = None) -> None:
        """Tell it something. A host that is lost is passed over."""
        with contextlib.suppress(LinkClosed):
            self._lane.send(message, payload)

    def ask(self, make: Callable[[int], AnyMessage]) -> Pending:
        """Put a question, by its number."""
        pending = Pending(self._reactor)
        with self._asking:
            number = next(self._numbers)
            if self.trouble:
                pending.resolve(Done(number, self.trouble), [])
            else:
                self._pending[number] = pending
        self.post(make(number))
        return pending

    # On the thread that runs the loop.

    def tick(self) -> None:
        """`PACE` seconds have gone by."""
        if self.trouble or self.hello is None:
            return
        # Counted, not measured: while the controller itself was stopped, its hosts were not silent.
        self._num_silent += 1
        if self._num_silent * PACE > SILENCE:
            self.lose(f"it gave no sign of life for {SILENCE:g} s")
            return
        try:
            self._lane.send(Beat())
        except LinkClosed:
            self.lose("its agent is gone")

    def lose(self, why: str) -> None:
        """It is there no more, and its ranks with it."""
        if self.trouble:
            return
        if self.hello and (words := self._last_words(self)):  # such as that its time is up
            why = f"{why}; its launcher said: {words}"
        self._on_lost(self)  # first: who sees the trouble may start the host again, and its launcher is not to be ended
        self._end(f"host {self.name} was lost: {why}" if self.hello else f"host {self.name}: {why}")
        for branch in list(self.branches.values()):
            branch.on_host_lost(self)
        self.branches.clear()
        self._reactor.announce(self.settled)

    def dismiss(self) -> None:
        """It is not needed any more: its agent ends."""
        if not self.trouble:
            self.post(Bye())
            self._end(f"host {self.name} was given back")
            self._reactor.announce(self.settled)

    def _end(self, trouble: str) -> None:
        """It answers no more: who waits for it is told why."""
        with self._asking:
            self.trouble = trouble
            pending, self._pending = self._pending, {}
        self.close()
        for number, each in pending.items():
            each.resolve(Done(number, trouble), [])

    def close(self) -> None:
        """Tell the agent that nothing follows: it ends."""
        self._link.unwatch(self._reactor)
        self._lane.close()

    def _on_lane(self) -> None:
        self._num_silent = 0
        try:
            while not self.trouble and (received := self._lane.recv_nowait()) is not None:
                try:
                    self._take(*received)
                except BaseException as error:  # noqa: BLE001 - what came behind it no descriptor tells of again
                    report(error)
        except LinkClosed:
            self.lose("its agent has ended")

    def _take(self, message: AnyMessage, frames: Frames) -> None:
        if isinstance(message, News):
            if (branch := self.branches.get(message.crew)) is not None:
                branch.on_news(self, message, frames)
        elif isinstance(message, Beat):
            self.stats, self.spares = message.stats, message.spares
        elif isinstance(message, Done):
            if (pending := self._pending.pop(message.seq, None)) is not None:  # else it has just been given back
                pending.resolve(message, frames)
        else:
            assert isinstance(message, Hello), message
            if trouble := self._greet(self, message):
                self.lose(trouble)
            else:
                self.hello = message
                self._reactor.announce(self.settled)
