"""The node of a rank: what comes over the control lane for its actors, and the links to other ranks."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..controller.root_services import Leased, ask_root
from ..engines.spec import HOME, Site
from ..errors import LinkClosed
from ..mesh import ProcMesh
from ..mesh_spec import MeshSpec
from ..ndslice import NDSlice
from ..node import ROOT, Address, Node
from ..numbers import new_mesh
from ..shape import Shape
from ..supervision import MeshFailure
from ..wire.codec import Encoded
from ..wire.deferred import Waiting
from ..wire.held import held_here
from ..wire.lane import Frames, Lane, pack
from ..wire.link import Buffer, NearLink, PairLink
from ..wire.messages import (
    Answer,
    AnyMessage,
    Bye,
    Call,
    Connect,
    Died,
    Fault,
    Forwarded,
    Note,
    Peer,
    PortSend,
    Reply,
    Revived,
    Spawn,
    StopActor,
)
from ..wire.outlet import Outlet, owned
from ..wire.pool import Pool
from ..wire.reactor import Reactor
from .intake import Intake, Jobs, Shared, Solo
from .place import Move, Place
from .streams import Streams
from .turns import AnswerTo


class Outpost(Node):
    """A rank as a node."""

    def __init__(
        self,
        mesh: int,
        place: Place,
        reactor: Reactor,
        control: Lane,
        pool: Pool | None,
        streams: Streams,
        site: Site = HOME,
        *,
        has_bootstrap: bool = False,
        stays_awake: bool = False,
    ) -> None:
        """`stays_awake`: its actors do, before they sleep (`wire.awake`)."""
        super().__init__((mesh, place.rank), reactor)
        self._place = place
        self._site = site
        self._control = control
        self._pool = pool
        self._streams = streams
        is_shared = Shared.is_possible(control)
        self.intake: Intake = self._share(control, stays_awake) if is_shared else Solo(control)
        place.report = lambda message: self._answer_root(message, None)
        self._ways: dict[Address, _Way] = {}
        self._forwarded: dict[Address, tuple[_Forwarder, _Way]] = {}  # of what the controller hands on
        self._met: dict[Address, list[_Way]] = {}  # all open links
        self._asked: dict[Address, list[tuple[AnyMessage, Encoded | None]]] = {}
        # Of ways, met and asked: actors send on their threads, links come on the control thread.
        self._lock = threading.RLock()
        self._is_sending_here = held_here(self._lock)
        self.has_heard_all = threading.Event()
        """Set when its actors have what they were sent before the goodbye; the main thread may have its own sooner."""
        self._is_holding = False
        self._held: list[Callable[[], None]] = []
        self._holding = threading.RLock()  # of the two above: messages come on the control thread and on the loop
        if has_bootstrap:
            self._gate = []

    def _share(self, control: Lane, stays_awake: bool) -> Shared:
        def on_call(call: Call, frames: Frames) -> None:
            take = self.receive if self._is_holding else self.take
            take(call, frames, self._answer_root)

        return Shared(control, on_call, self.reactor.is_wanted, stays_awake)

    def hold(self) -> None:
        """Keep what comes for actors until `release`: they are not to run while the main thread prepares the rank.

        One that calls `init_process_group` meanwhile would meet the half-made groups of the mesh.
        """
        self._is_holding = True

    def release(self) -> None:
        """The rank is as its actors may find it: let them have what has come."""
        with self._holding:
            for receive in self._held:
                receive()
            self._held.clear()
            self._is_holding = False

    def receive(self, message: AnyMessage, frames: Frames, answer: AnswerTo) -> None:
        if not (self._is_holding and self._keep(message, frames, answer)):
            super().receive(message, frames, answer)

    def _keep(self, message: AnyMessage, frames: Frames, answer: AnswerTo) -> bool:
        with self._holding:
            if not self._is_holding or not isinstance(message, Spawn | Call | StopActor):
                return False
            kept, take = list(frames), super().receive
            self._held.append(lambda: take(message, kept, answer))
            return True

    def jobs(self, actor: int) -> Jobs:
        return self.intake.jobs(actor)

    def send_away(self, address: Address, message: AnyMessage, payload: Encoded | None) -> None:
        if address == ROOT:
            self._answer_root(message, payload)
            return
        if self._is_sending_here():  # a `__del__` that the collector runs inside of a send
            later = payload and owned(payload)
            self.reactor.schedule(lambda: self.send_away(address, message, later))
            return
        with self._lock:
            way = self._ways.get(address)
            waiting = self._asked.setdefault(address, []) if way is None else []
            if way is None:
                waiting.append((message, payload and owned(payload)))
        if way is not None:
            way.send(message, payload)
        elif len(waiting) == 1:
            self._answer_root(Connect(*address), None)

    def on_control(self, message: AnyMessage, frames: Frames, fds: Sequence[int]) -> None:
        """What the controller says that is not for the main thread."""
        if isinstance(message, Peer):
            self._on_peer(message, fds)
        elif isinstance(message, Forwarded):
            self._on_forwarded((message.mesh, message.rank), frames[1])
        elif isinstance(message, Died):
            self._part(message)
        elif isinstance(message, Revived):
            self.revive((message.mesh, message.rank))
        elif isinstance(message, Reply | Answer | Note):
            self.reactor.schedule(lambda: self.deliver(ROOT, message, frames))
        elif isinstance(message, PortSend | Fault):
            self.reactor.schedule(lambda: self.receive(message, frames, self._answer_root))
        elif isinstance(message, Bye):
            self.has_heard_all.set()
        else:
            self.receive(message, frames, self._answer_root)

    def _answer_root(self, message: AnyMessage, payload: Encoded | None) -> None:
        try:
            self._control.send(message, payload)
        except LinkClosed:
            return  # the controller is gone, and this rank with it

    def _on_peer(self, message: Peer, fds: Sequence[int]) -> None:
        address = message.mesh, message.rank
        if fds:
            self.meet(address, PairLink(socket.socket(fileno=fds[0])))
        elif message.has_link:  # this process has no descriptor left for its end
            self._answer_root(Connect(*address, is_direct=False), None)
        elif address not in self._forwarded:  # both may have asked: once is enough
            link = _Forwarder(address, self._control)
            way = self._join(address, link)
            self._forwarded[address] = link, way
            self._speak(address, way)

    def meet(self, address: Address, link: NearLink) -> None:
        """A link to another rank has come: because this rank asked, or the other did."""
        way = self._join(address, link)
        way.send(Peer(*self.address, has_link=True))  # before the loop looks, and may send what waits
        link.watch(self.reactor, lambda: self._on_greeting(address, way))

    def _join(self, address: Address, link: NearLink) -> _Way:
        # By a key of the link's own: an end maps what it was told of over this link, and two ranks may have two.
        lane = Lane(link, self._pool, object())
        way = _Way(lane, link, self.reactor)
        lane.on_release = lambda: self.reactor.schedule(lambda: _send_releases(lane))
        with self._lock:
            self._met.setdefault(address, []).append(way)
        return way

    def _on_greeting(self, address: Address, way: _Way) -> None:
        """The other rank has its end of a link too, or it ends: what was sent before would have been lost."""
        try:
            if way.lane.recv_nowait() is None:
                return
        except LinkClosed:
            self._hang_up(address, way)
            return
        way.link.unwatch(self.reactor)
        way.link.watch(self.reactor, lambda: self._on_way(address, way))
        self._speak(address, way)

    def _speak(self, address: Address, way: _Way) -> None:
        """What this rank says to the other one goes this way from now on, first what has waited for it."""
        with self._lock:
            if way.is_over:
                return
            # Two that ask for each other at once get two links: each sends on the one it has first.
            first = self._ways.setdefault(address, way)
            for message, payload in self._asked.pop(address, []):  # under the lock: what is sent next comes after it
                try:
                    first.send(message, payload)
                except MemoryError:  # who has sent it could not be told any more: it goes in pieces
                    first.post(pack(message, payload))

    def _on_forwarded(self, address: Address, data: Buffer) -> None:
        """The controller hands on what another rank says; not by way of the loop.

        What the controller says after it must not overtake it: it may know that the other rank has said this.
        """
        found = self._forwarded.get(address)
        if found is None:
            return
        link, way = found
        with contextlib.suppress(LinkClosed):  # nobody listens any more
            link.hand_in(data)
            while (received := way.lane.recv_nowait()) is not None:
                message, frames = received
                if isinstance(message, Reply | Answer | Note):
                    self.reactor.schedule(lambda m=message, f=frames: self.deliver(address, m, f))
                elif isinstance(message, PortSend | Fault):
                    self.reactor.schedule(lambda m=message, f=frames: self.receive(m, f, way.send))
                else:
                    self.receive(message, frames, way.send)

    def _on_way(self, address: Address, way: _Way) -> None:
        if way.backlog:
            way.drain()
        try:
            while (received := way.lane.recv_nowait()) is not None:
                message, frames = received
                if isinstance(message, Reply | Answer | Note):
                    self.deliver(address, message, frames)
                else:
                    self.receive(message, frames, way.send)
        except LinkClosed:
            # That the rank is gone the controller tells, with the reason; here only the link ends.
            self._hang_up(address, way)

    def _hang_up(self, address: Address, way: _Way) -> None:
        with self._lock:
            ways = self._met.get(address, [])
            if way not in ways:
                return
            ways.remove(way)
            if not ways:
                del self._met[address]
        way.link.unwatch(self.reactor)
        way.close()
        self._forget(way)

    def hang_up(self) -> None:
        """Close all links to other ranks, as the end of a process would; on the loop."""
        for address, ways in list(self._met.items()):
            for way in list(ways):
                self._hang_up(address, way)

    def move(self, move: Move) -> None:
        """The mesh was resized. Where ranks were renumbered, what users had made here was addressed by old numbers."""
        fleet = self.fleets.get(move.mesh)
        if fleet is not None:
            fleet.axes = dict(move.axes)
        if move.mesh != self.address[0]:
            for resident in list(self.residents.values()):
                assert resident.instance.on_stop is not None
                resident.instance.on_stop("the mesh was resized")
        self.address = (move.mesh, self._place.rank)

    def _part(self, message: Died) -> None:
        address = (message.mesh, message.rank)
        with self._lock:
            way = self._ways.pop(address, None)
            self._asked.pop(address, None)
            for each in self._met.get(address, ()):
                each.is_over = True
        if self._forwarded.pop(address, None) is not None and way is not None:
            self.reactor.schedule(lambda: self._hang_up(address, way))  # its end is told by nothing else
        if message.has_ended:  # else it still has what it was given, and gives it back
            for each in list(self._met.get(address, ())):  # a child of it may hold the other end of the link
                self._forget(each)
        self.lose(address, message.why, message.is_fault, message.has_ended)

    def _forget(self, way: _Way) -> None:
        if self._pool is not None:
            self._pool.forget(way.lane.peer)

    def unhandled(self, failure: MeshFailure) -> None:
        """The owner has gone: the failure ends here, on the log of the rank, beside what is printed."""
        print(f"meshbook: a failure without an owner: {failure.report()}", file=sys.stderr, flush=True)

    def proc_mesh(self, shape: Shape) -> ProcMesh:
        return ProcMesh(self.fleet(self.address[0], self._place.axes), shape, is_owned=False)

    def own_procs(self) -> ProcMesh:
        rank = self._place.rank
        return self.proc_mesh(Shape((), NDSlice(offset=rank, sizes=[], strides=[])))

    def site_of(self, address: Address) -> Site:
        """Where a rank lives; asks the root about another one."""
        return self._site if address == self.address else ask_root(self, "site_of", address).get()

    def spawn_procs(
        self, wanted: MeshSpec, mesh: int | None = None, waiting: Waiting = contextlib.nullcontext
    ) -> ProcMesh:
        """Ask the root for them: processes belong to the controller, and die with it."""
        return ProcMesh(Leased(self, mesh or new_mesh(), wanted), Shape.row_major(wanted.axes))

    def outgoing_run(self) -> int:
        self._streams.flush()
        return self._streams.current()

    def begin_run(self, run: int) -> int:
        return self._streams.join(run)

    def flush(self, said: int) -> bool:
        return self._streams.leave(said)


@dataclass(slots=True)
class _Way(Outlet):
    """A way to another rank."""

    is_over: bool = False
    """The rank that it leads to is gone: another process may be in its place."""


class _Forwarder:
    """A link to a rank to which none could be passed: the controller takes what goes there, and hands in what comes."""

    carries_fds = False
    is_level_triggered = True
    largest: int | None = None

    def __init__(self, address: Address, control: Lane) -> None:
        self._message = Forwarded(*address)
        self._control = control
        self._received: deque[Buffer] = deque()
        self._is_closed = False

    def hand_in(self, data: Buffer) -> None:
        """A datagram of the other rank has come. Raises `LinkClosed` when this end is closed."""
        if self._is_closed:
            raise LinkClosed("this end is closed")
        self._received.append(data)

    def fileno(self) -> int:
        """None: a process that is out of descriptors has links of this kind."""
        return -1

    def filenos(self) -> Sequence[int]:
        return ()

    def watch(self, reactor: Reactor, on_ready: Callable[[], object]) -> None:
        """Whoever hands something in reads it."""

    def unwatch(self, reactor: Reactor) -> None:
        """Nobody watches."""

    def watch_writes(self, reactor: Reactor, on: bool) -> None:
        """There is room at any time."""

    def send(self, parts: Sequence[Buffer], fds: Sequence[int] = ()) -> None:
        payload = Encoded(b"", [memoryview(b"".join(parts))])
        with contextlib.suppress(LinkClosed):  # the controller is gone, and this rank with it
            self._control.send_anyway(self._message, payload)

    def send_nowait(self, parts: Sequence[Buffer], fds: Sequence[int] = ()) -> bool:
        self.send(parts)
        return True

    def recv(self) -> tuple[memoryview, list[int]]:
        return memoryview(self._received.popleft()), []

    def recv_nowait(self) -> tuple[memoryview, list[int]] | None:
        return self.recv() if self._received else None

    def close(self) -> None:
        """The controller tells the other rank if this one ends."""
        self._is_closed = True


def _send_releases(lane: Lane) -> None:
    with contextlib.suppress(LinkClosed, OSError):  # the other rank is gone, and its memory with it
        lane.send_releases()
