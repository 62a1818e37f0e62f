"""A worker loop: a process that waits on its host for programs, and starts an agent for each that comes.

`python -m meshbook.runtime.engines.worker_loop ADDRESS` is one; `meshbook.run_worker_loop_forever` makes one of the
program that calls it. Only who holds the keys of the same user is heard (`worker_key`): what it says starts processes.
What the two say are two frames: a word, and a text.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import zmq

from ..errors import LinkClosed
from ..wire.reactor import Reactor, When
from ..wire.zmq_door import Door
from ..wire.zmq_socket import GuardedSocket, configure
from .launch import Launch, launch_line
from .summons import Summons
from .worker_address import WorkerAddress, read_address
from .worker_key import own_keys

START, KILL, END = b"start", b"kill", b"end"
"""What a client says: start an agent with this summons; kill it; the loop is to end."""

THERE, OVER = b"there", b"over"
"""What is answered: it was heard; the agent has ended, and how, or the loop ends."""

named_here: dict[str, str] = {}
"""Where the loops of this process listen that are called by `inproc://NAME`."""


class WorkerLoop:
    """Listens at `address`, on the loop of `reactor`, until it is closed; any number of programs may come.

    Raises `ValueError` for an address that is none, and `OSError` where it cannot be had or there are no keys.
    """

    def __init__(self, reactor: Reactor, address: str) -> None:
        place = read_address(address)
        keys = own_keys()
        self.over = When(lambda: self._is_over)  # an event without a lock: a signal handler may end the loop
        self._is_over = False
        self._reactor = reactor
        self._agents: dict[bytes, Launch] = {}  # by who has asked for them
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._name = address if place.transport == "inproc" else ""
        self._context: Any = zmq.Context()
        self._door = Door(self._context, reactor, keys)
        self._door.admit(keys)
        router = self._context.socket(zmq.ROUTER)
        configure(router, place.transport)
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        if place.fd >= 0:
            router.setsockopt(zmq.USE_FD, place.fd)
        self._door.guard(router)
        self._socket = GuardedSocket(router, lambda: reactor.schedule(self._pump))
        try:
            endpoint = self._socket.bind(self._endpoint(place))
        except BaseException:
            self._free()
            raise
        if self._name:
            named_here[self._name] = endpoint
        reactor.add(self._socket.fd, self._pump)
        reactor.schedule(self._pump)

    def _endpoint(self, place: WorkerAddress) -> str:
        if self._name:
            if self._name in named_here:
                raise OSError(f"{self._name}: another worker loop of this process has this name")
            self._folder = tempfile.TemporaryDirectory(prefix="meshbook-")
            return f"ipc://{self._folder.name}/loop"
        if place.transport == "ipc":
            _check_free(place.bind.removeprefix("ipc://"))
        if place.fd >= 0:
            return _listening_at(place.fd)
        return place.bind

    def serve(self) -> None:
        """Wait until a program says that the loop is to end."""
        self._reactor.wait(self.over)

    def end(self) -> None:
        """Let `serve` return; signal handlers may call this too, whatever their thread is doing."""
        self._is_over = True
        self._reactor.schedule(self._reactor.wake)

    def close(self) -> None:
        """End the agents that were started here, and listen no more."""
        for agent in list(self._agents.values()):
            agent.kill()
            agent.close()
        self._reactor.remove(self._socket.fd)
        if self._name:
            del named_here[self._name]
        self._free()

    def _free(self) -> None:
        self._socket.close()
        self._door.close()
        self._context.term()
        if self._folder is not None:
            self._folder.cleanup()

    # On the thread that runs the loop.

    def _pump(self) -> None:
        while (frames := self._socket.recv()) is not None:
            if len(frames) == 3:
                client, word, text = (frame.bytes for frame in frames)
                self._hear(client, word, text.decode(errors="replace"))

    def _hear(self, client: bytes, word: bytes, text: str) -> None:
        if word == START and client not in self._agents:
            self._start(client, text)
        elif word == KILL and client in self._agents:
            self._agents[client].kill()
        elif word == END:
            self._say(client, OVER, "")
            self.end()

    def _start(self, client: bytes, text: str) -> None:
        try:
            summons = Summons.read(text)
            argv = launch_line("", "", "held")
            self._agents[client] = Launch(self._reactor, argv, summons, "held", lambda why: self._ended(client, why))
        except (ValueError, OSError) as error:
            self._say(client, OVER, f"its worker loop could not start an agent: {error}")
        else:
            self._say(client, THERE, "")

    def _ended(self, client: bytes, why: str) -> None:
        self._agents.pop(client, None)
        self._say(client, OVER, why)

    def _say(self, client: bytes, word: bytes, text: str) -> None:
        with contextlib.suppress(LinkClosed):  # who asked has gone: its agent ends by itself
            self._socket.send(client, word, text.encode())


def _check_free(path: str) -> None:
    """Raise `OSError` where somebody listens at this path: zmq would take it away from him."""
    if path.startswith("@") or not Path(path).is_socket():
        return
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(path) == 0:
            raise OSError(f"ipc://{path}: another process listens there")


def _listening_at(fd: int) -> str:
    """Where this socket listens. Raises `OSError` for another one: zmq would end the process."""
    sock = socket.socket(fileno=fd)
    try:
        if sock.family != socket.AF_INET or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise OSError(f"fd{fd} is no socket that listens at a port")
        host, port = sock.getsockname()
        return f"tcp://{host}:{port}"
    finally:
        sock.detach()


def main(address: str) -> int:
    """Be a worker loop until a program ends it, or a signal; the exit code."""
    signals: list[int] = []
    reactor = Reactor()
    try:
        loop = WorkerLoop(reactor, address)

        def end(signum: int, _: object) -> None:  # an exception could come where the loop takes a lock, and keep it
            signals.append(signum)
            loop.end()

        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, end)
        try:
            print(f"meshbook: a worker loop waits at {address}", flush=True)
            with reactor.alert():
                loop.serve()
        finally:
            loop.close()
    finally:
        reactor.close()
    return 128 + signals[0] if signals else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m meshbook.runtime.engines.worker_loop ADDRESS, such as tcp://node7:26600")
    try:
        sys.exit(main(sys.argv[1]))
    except (ValueError, OSError) as trouble:
        sys.exit(f"meshbook: no worker loop: {trouble}")
    except KeyboardInterrupt:
        sys.exit(130)
