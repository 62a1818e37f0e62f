"""The agent of another host: `python -m meshbook.runtime.engines.remote_agent env|stdin|held`, started by a launcher.

It dials its controller, whose address and keys it finds in its environment or gets as one line of standard input
(`summons`), starts the zygote of its host as a child and owns the ranks there. It never runs user code. Its main thread
does what the controller says, in order; the loop hears the ranks; a third thread says twice a second that it lives.
When the controller is gone it ends its ranks and itself; so does one that is `held` at the end of its standard input.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ..errors import LinkClosed, SpawnError
from ..ranks.failure import describe
from ..system.devices import num_gpus
from ..system.inherited import plain_signals
from ..wire import codec
from ..wire.codec import Encoded
from ..wire.lane import Frames, Lane
from ..wire.link import Address
from ..wire.messages import (
    AnyMessage,
    Beat,
    Bye,
    Disband,
    Done,
    Enlist,
    Hello,
    Hold,
    Introduce,
    Kill,
    Look,
    Mirror,
    Muster,
    Relay,
    Renumber,
    Renumbered,
    Reply,
    Room,
    Store,
    decoder,
    wants_reply,
)
from ..wire.reactor import Reactor, contained
from ..wire.zmq_link import ZmqLink
from .agent import Agent
from .base import Party
from .copies import Copies
from .ears import Ears, encoded
from .local import LocalEngine
from .openings import HeldPorts, make_room
from .spec import RankSpec, decode_spec
from .summons import VARIABLE, Summons
from .versions import own_versions

PACE = 0.5
"""Seconds between two beats."""

FORGOTTEN = 15.0
"""Seconds without a word of the controller after which it is gone. The links notice one that is really gone."""

PIECE = 1 << 20
"""Bytes of a datagram between hosts: larger messages are cut, so that there are signs of life between the pieces."""


class RemoteAgent:
    """The ranks of all meshes on this host, at the end of `lane`; `give_up` closes it, from any thread."""

    def __init__(
        self,
        reactor: Reactor,
        engine: LocalEngine,
        lane: Lane,
        addr: str,
        copies: Copies,
        give_up: Callable[[], object] = lambda: None,
    ) -> None:
        self._reactor = reactor
        self._engine = engine
        self._copies = copies
        self._lane = lane
        self._addr = addr
        self._env = _host_environment(addr)
        self._crews: dict[int, Agent] = {}
        self._ears: dict[int, Ears] = {}
        self._held: dict[int, HeldPorts] = {}
        self._numbering = threading.Lock()  # a beat is to name all ranks as before a renumbering, or as after it
        self._is_over = threading.Event()
        self._give_up = give_up
        self._num_quiet: int | None = None  # beats since the controller was heard; None while its word is done
        self._beating = threading.Thread(target=self._beat, name="meshbook-beat", daemon=True)
        self._acts: dict[type, Callable[[Any, Frames], object]] = {
            Hold: self._answering(self._hold),
            Enlist: self._answering(self._enlist),
            Room: self._answering(lambda order: make_room(order.more, order.again)),
            Muster: self._answering(self._muster),
            Renumber: self._renumber,
            Relay: self._relay,
            Kill: self._kill,
            Look: self._look,
            Disband: self._disband,
            Introduce: self._introduce,
            Mirror: self._answering(self._mirror),
            Store: lambda store, frames: self._copies.store(store.digest, frames[0]),
            Beat: lambda beat, _: None,
        }

    def serve(self) -> bool:
        """Do what the controller says until it is gone, or says that nothing follows; whether it said so for good."""
        self._say(_hello(self._addr))
        self._beating.start()
        try:
            while True:
                self._num_quiet = 0
                message, frames = self._lane.recv()
                self._num_quiet = None
                if isinstance(message, Bye):
                    return True
                self._acts[type(message)](message, frames)
        except LinkClosed:
            return False
        finally:
            self._end()

    def _end(self) -> None:
        self._is_over.set()
        for crew in list(self._crews):
            self._crews.pop(crew).close()
        for held in self._held.values():
            held.close()
        self._beating.join()

    def _answering(self, act: Callable[[Any], Done | None]) -> Callable[[Any, Frames], None]:
        """`act`, after which the controller is told that it is done, or what is in the way."""

        def answer(order: Any, _: Frames) -> None:
            try:
                done = act(order) or Done(order.seq)
            except (SpawnError, OSError, ValueError) as error:
                done = Done(order.seq, str(error))
            self._say(done)

        return answer

    def _hold(self, hold: Hold) -> Done:
        try:
            self._held[hold.crew] = HeldPorts(self._addr)
        except OSError as error:
            raise SpawnError(f"no port at {self._addr}: {error}") from error
        return Done(hold.seq, ports=self._held[hold.crew].numbers)

    def _enlist(self, order: Enlist) -> None:
        specs = [self._own(spec) for spec in order.specs]
        if order.crew in self._crews:
            self._ears[order.crew].welcome(spec.rank for spec in specs)
            self._crews[order.crew].respawn(specs)
        else:
            ears = self._ears[order.crew] = Ears(order.crew, self._reactor, self._say)
            self._crews[order.crew] = self._engine.agent(specs, ears, order.how, self._held.pop(order.crew, None))

    def _own(self, encoded: bytes) -> RankSpec:
        spec = decode_spec(encoded)
        return self._copies.placed(replace(spec, env=self._env | spec.env))

    def _muster(self, order: Muster) -> None:
        crew = self._crews.get(order.crew)
        if crew is not None:
            crew.keep_spares(order.count, self._own(order.spec))
        self._tell()  # so that they are counted as soon as it is done

    def _renumber(self, order: Renumber, _: Frames) -> None:
        def do() -> None:  # on the loop, which tells what ranks say: between two of their messages
            if (crew := self._crews.get(order.crew)) is not None:
                self._ears[order.crew].renumber(order.numbers)
                crew.renumber(order.numbers)
            self._say(Renumbered(order.crew))

        with self._numbering:
            self._reactor.perform(do)

    def _relay(self, relay: Relay, frames: Frames) -> None:
        crew = self._crews.get(relay.crew)
        if crew is None:
            return
        message, ears = decoder.decode(relay.packet).message, self._ears[relay.crew]
        payload = encoded(frames)
        ears.expect(message, relay.ranks)
        try:
            (crew.post_control if relay.is_control else crew.post)(relay.ranks, message, payload)
        except MemoryError as error:  # the shared memory of this host is full
            if wants_reply(message):
                reply, failure = Reply(message.seq, ok=False), bytearray(codec.encode(describe(error)).head)
                self._reactor.schedule(lambda: [ears.on_message(rank, reply, [failure]) for rank in relay.ranks])

    def _look(self, look: Look, _: Frames) -> None:
        def answer() -> None:
            crew = self._crews.get(look.crew)
            seen = crew.look(look.ranks, look.native) if crew is not None else {}
            self._say(Done(look.seq), codec.encode(seen))

        # Not here: py-spy may take seconds, and a rank that does not answer is to be killed at once.
        threading.Thread(target=answer, name="meshbook-look", daemon=True).start()

    def _disband(self, order: Disband, _: Frames) -> None:
        crew, held = self._crews.pop(order.crew, None), self._held.pop(order.crew, None)
        if crew is not None:
            crew.close()
        if held is not None:  # other hosts have failed before its ranks were started
            held.close()
        self._ears.pop(order.crew, None)
        self._say(Done(order.seq))

    def _introduce(self, order: Introduce, _: Frames) -> None:
        one, other = self._party(order.one), self._party(order.other)
        if one is not None and other is not None:
            self._engine.introduce(one, other)

    def _party(self, which: tuple[int, int, int]) -> Party | None:
        crew = self._crews.get(which[0])
        return None if crew is None else Party(crew, which[1], which[2])

    def _mirror(self, order: Mirror) -> Done:
        return Done(order.seq, lacks=self._copies.mirror(order.folder, order.files))

    def _kill(self, order: Kill, _: Frames) -> None:
        if (crew := self._crews.get(order.crew)) is not None:
            crew.kill(order.ranks)

    def _say(self, message: AnyMessage, payload: Encoded | None = None) -> None:
        with contextlib.suppress(LinkClosed):  # the main thread hears of it too
            self._lane.send(message, payload)

    def _beat(self) -> None:
        while not self._is_over.wait(PACE):
            self._listen()
            contained(self._tell)  # who gave no sign of life any more would be lost, with all ranks here

    def _tell(self) -> None:
        """Say that this host lives, and what it sees of the processes on it."""
        with self._numbering:
            crews = self._crews.copy().items()
            stats = {number: dict(crew.stats(list(crew.pids))) for number, crew in crews}
            self._say(Beat(stats, {number: crew.num_spares for number, crew in crews}))

    def _listen(self) -> None:
        """Notice a controller that lives and has forgotten this agent: else it would say so twice a second."""
        if (num_quiet := self._num_quiet) is not None:
            self._num_quiet = num_quiet + 1
            if num_quiet * PACE > FORGOTTEN:
                self._give_up()


def _hello(addr: str) -> Hello:
    return Hello(
        os.uname().nodename,
        addr,
        os.getpid(),
        *own_versions(),
        num_gpus(),
    )


def own_address(endpoint: str) -> str:
    """The address of this machine on the way to the controller at `endpoint`, where other hosts reach it too.

    Example:
        >>> own_address("tcp://127.0.0.1:4711")
        '127.0.0.1'
    """
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, int(port)))  # of a datagram socket: nothing is sent
        return probe.getsockname()[0]


def _host_environment(addr: str) -> dict[str, str]:
    """What ranks on this host find in their environment below what the user sets."""
    import psutil

    if addr.startswith("127."):
        return dict(os.environ)
    names = [name for name, known in psutil.net_if_addrs().items() if any(each.address == addr for each in known)]
    # gloo would go by the host's name, which often means 127.0.1.1 (Debian) or nothing.
    return ({"GLOO_SOCKET_IFNAME": names[0]} if names else {}) | dict(os.environ)


def _summons(source: str) -> Summons:
    text = os.environ.pop(VARIABLE, "") if source == "env" else sys.stdin.readline().strip()
    if not text:
        where = f"{VARIABLE} is not set here: the launcher must hand its environment on"
        raise ValueError(where if source == "env" else "nothing came by standard input: the launcher must pass it on")
    return Summons.read(text)


def main(source: str) -> None:
    """Be the agent of this host."""
    plain_signals()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Jupyter's interrupt is for the ranks, and comes as a message
    summons = _summons(source)
    address = summons.address()
    reactor = Reactor()
    engine = LocalEngine(reactor, summons.modules)
    engine.warm()
    copies = Copies()

    def leave(signum: int, _: object) -> None:  # of an allocation that ends: what is on the host's disk goes
        signal.signal(signum, signal.SIG_IGN)  # it may come again
        copies.close()
        signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)

    signal.signal(signal.SIGTERM, leave)
    if source == "held":
        threading.Thread(target=_leave_with_holder, name="meshbook-holder", daemon=True).start()
    try:
        link: ZmqLink | None = ZmqLink(address)
        while link is not None:
            link.largest = PIECE
            agent = RemoteAgent(reactor, engine, Lane(link), own_address(address.endpoint), copies, link.give_up)
            is_given_back = agent.serve()
            link.close()
            link = None if is_given_back else _next_link(address, summons.keep)
    finally:
        engine.close()
        reactor.close()
        copies.close()


def _leave_with_holder() -> None:
    while os.read(0, 1024):  # nothing is said there any more
        pass
    while True:  # one that comes right before the main thread goes to sleep does not wake it
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.05)


def _next_link(address: Address, seconds: float) -> ZmqLink | None:
    """The link to who comes in place of a controller that is gone; None when nobody does in time."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        with contextlib.suppress(LinkClosed):  # nobody there, or somebody else
            return ZmqLink(address, left)
        time.sleep(min(PACE, left))
    return None


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except (ValueError, LinkClosed, SpawnError) as trouble:
        way = (
            "; MESHBOOK_ADDR names another address of the notebook's machine" if isinstance(trouble, LinkClosed) else ""
        )
        sys.exit(f"meshbook: no agent on {os.uname().nodename}: {trouble}{way}")
