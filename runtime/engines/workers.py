"""Agents by worker loops (`worker_loop`) that wait on their hosts: dialled, told to start one, and heard of its end."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import zmq
from msgspec.structs import replace
from zmq.utils.monitor import parse_monitor_message  # pyright: ignore[reportUnknownVariableType]

from ..errors import LinkClosed, SpawnError
from ..wire.reactor import Reactor
from ..wire.zmq_door import Keys
from ..wire.zmq_socket import MEETINGS, GuardedSocket, configure
from .launch import Launcher, OnEnd
from .summons import Summons
from .worker_address import WorkerAddress, read_address
from .worker_key import key_file, own_keys
from .worker_loop import END, KILL, OVER, START, THERE, named_here

ANSWER_SECONDS = 30.0
"""How long a worker loop may take to answer: it may be about to start."""

_END_SECONDS = 5.0
"""How long agents and loops that were told to end may take."""


class WorkersLauncher(Launcher):
    """Starts agents by worker loops at these addresses, which are the names of the hosts.

    Raises `ValueError` for an address that is none, or is there twice.
    """

    is_one_by_one = True

    def __init__(self, reactor: Reactor, addresses: Sequence[str], patience: float = ANSWER_SECONDS) -> None:
        self._reactor = reactor
        self.patience = patience
        """Seconds that a worker loop has to answer."""
        self.names = tuple(addresses)
        self._places = [read_address(address) for address in addresses]
        if twice := [name for name in self.names if self.names.count(name) > 1]:
            raise ValueError(f"{twice[0]} is named twice: a worker loop is one host")
        self.far = [place.host for place in self._places if place.host]
        """Machines other than this one that are dialled."""
        self._talks: dict[int, Talk] = {}

    def refusal(self, num_hosts: int) -> str:
        return "" if num_hosts <= len(self.names) else "its worker loops are those that were named"

    def start(self, hosts: Sequence[int], summons: Summons, on_end: OnEnd) -> None:
        try:
            keys = own_keys()
        except (OSError, ValueError) as error:
            raise SpawnError(str(error)) from error
        for host, address in zip(hosts, summons.addresses, strict=True):
            text = replace(summons, addresses=(address,)).text()
            told: Callable[[str], object] = lambda why, host=host: on_end([host], why)  # noqa: E731
            self._talks[host] = Talk(self._reactor, self._places[host], keys, START, text, self.patience, told)

    def forget(self, host: int) -> None:
        talk = self._talks.pop(host, None)
        if talk is not None:
            talk.kill()
            talk.close()

    def let_go(self) -> None:
        raise NotImplementedError("agents of worker loops end with their notebook: the loops wait, and start others")

    def close(self) -> None:
        late = self._wait([talk for talk in self._talks.values() if talk.is_heard.is_set()])
        for talk in late:
            talk.kill()
        self._wait(late)
        for talk in self._talks.values():
            talk.close()
        self._talks.clear()

    def _wait(self, talks: Sequence[Talk]) -> list[Talk]:
        """Those that are not over in time."""
        deadline = time.monotonic() + _END_SECONDS
        return [talk for talk in talks if not self._reactor.wait(talk.over, max(0.0, deadline - time.monotonic()))]


def end_loops(reactor: Reactor, addresses: Sequence[str]) -> None:
    """Tell worker loops to end, and wait until they have heard it; those that are gone already are passed over."""
    keys = own_keys()
    talks = [Talk(reactor, read_address(address), keys, END, "", _END_SECONDS, _ignore) for address in addresses]
    for talk in talks:
        reactor.wait(talk.over, _END_SECONDS)
        talk.close()


def _ignore(why: str) -> None: ...


class Talk:
    """With one worker loop: it is told a word, and `on_end` what it says of the end, once, on the loop."""

    def __init__(
        self,
        reactor: Reactor,
        place: WorkerAddress,
        keys: Keys,
        word: bytes,
        text: str,
        patience: float,
        on_end: Callable[[str], object],
    ) -> None:
        self.is_heard = threading.Event()
        self.over = threading.Event()
        """The agent has ended, or the loop, or it has not answered."""
        self._reactor = reactor
        self._on_end = on_end
        self._is_there = False  # the other end has proved its keys
        self._was_refused = False  # something was there that has not
        self._context: Any = zmq.Context()
        dealer = self._context.socket(zmq.DEALER)
        configure(dealer, place.transport)
        dealer.setsockopt(zmq.CURVE_SERVERKEY, keys.public)
        dealer.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
        dealer.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
        self._monitor = GuardedSocket(dealer.get_monitor_socket(MEETINGS), lambda: None)
        dealer.connect(named_here.get(place.dial, place.dial))
        self._socket = GuardedSocket(dealer, lambda: reactor.schedule(self._pump))
        reactor.add(self._socket.fd, self._pump)
        reactor.add(self._monitor.fd, self._watch)
        reactor.schedule(self._watch)
        self._say(word, text)
        reactor.schedule(lambda: reactor.later(patience, lambda: self._give_up(patience)))

    def kill(self) -> None:
        """End the agent at once."""
        self._say(KILL, "")

    def _say(self, word: bytes, text: str) -> None:
        with contextlib.suppress(LinkClosed):  # it is gone, or no worker loop
            self._socket.send(word, text.encode())

    def close(self) -> None:
        """Hear nothing more."""
        self._on_end = _ignore
        if not self._socket.is_closed:
            for each in (self._socket, self._monitor):
                self._reactor.remove(each.fd)
                each.close()
            self._context.term()

    # On the thread that runs the loop.

    def _pump(self) -> None:
        while (frames := self._socket.recv()) is not None:
            word, text = (frame.bytes for frame in frames)
            self._reactor.announce(self.is_heard)
            if word != THERE:
                assert word == OVER, word
                self._end(text.decode())

    def _watch(self) -> None:
        """Who is met. zmq connects again by itself, but what the other end was told is lost with it."""
        while (frames := self._monitor.recv()) is not None:
            event = parse_monitor_message([frame.bytes for frame in frames])["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._is_there = True
            elif not self._is_there:
                self._was_refused = True
            elif event == zmq.EVENT_DISCONNECTED:
                self._pump()  # its last words
                self._end("its worker loop is gone")

    def _give_up(self, patience: float) -> None:
        if self.is_heard.is_set() or self._socket.is_closed:
            return
        if self._was_refused:
            self._end(f"what listens there is no worker loop with the keys of {key_file()}")
        else:
            self._end(
                f"no worker loop has answered there within {patience:g} s: is one running, as you, "
                f"with the keys of {key_file()}?"
            )

    def _end(self, why: str) -> None:
        if not self.over.is_set():
            self._reactor.announce(self.over)
            self._on_end(why)
