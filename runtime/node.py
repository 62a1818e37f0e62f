"""A node: this process in the net of processes, with the actors that live here and the ways to those elsewhere.

The controller is the root, address (0, 0); each rank is a node at (number of its mesh, rank). Messages go straight from
node to node: over the controller's lanes, or over a link of their own between two ranks, which the root hands them.
"""

from __future__ import annotations

import functools
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from weakref import WeakSet, WeakValueDictionary

import msgspec

from . import owners
from .channel import Inbox, ReplyPort
from .engines.spec import Site
from .fleet import Fleet, RemoteFleet
from .here import settle
from .mesh_spec import MeshSpec
from .ndslice import NDSlice
from .orders import BOOTSTRAP
from .ranks.cleanup import PATIENCE
from .ranks.failure import RemoteFailure, describe
from .ranks.intake import Jobs, PlainJobs
from .ranks.resident import CANCEL_SECONDS, Resident
from .ranks.strikes import strike_all
from .ranks.turns import AnswerTo, Job, fatal, run_of
from .scope import Instance
from .shape import Point, Shape
from .supervision import MeshFailure, report_of_death
from .wire import codec
from .wire.codec import Encoded
from .wire.deferred import Waiting
from .wire.lane import Frames
from .wire.messages import Answer, AnyMessage, Call, Fault, Note, PortSend, Reply, Spawn, StopActor, View
from .wire.post import tell_lost
from .wire.reactor import Reactor

Address = tuple[int, int]
ROOT: Address = (0, 0)
OnMade = Callable[[RemoteFailure | None], None]


@functools.lru_cache(64)  # it is kept for each actor that ever stopped here, and there are few reasons
def _stopped(reason: str) -> RemoteFailure:
    """Why an actor is not here that was told to stop."""
    return RemoteFailure("Stopped", f"the actor has status: stopped{reason and f': {reason}'}", "", None, True)


_STOPPED = _stopped("")

LOST_PATIENCE = 1.0
"""Seconds that calls wait for an actor that is not made yet, from when any process was lost: it may not be made."""


class Node(ABC):
    """What root and ranks have in common."""

    def __init__(self, address: Address, reactor: Reactor) -> None:
        self.address = address
        self.host_addr = "127.0.0.1"
        """Where processes of other hosts reach this one, as far as it is known."""
        self.reactor = reactor
        self.residents: dict[int, Resident] = {}
        self._ending: WeakSet[Resident] = WeakSet()  # those that were to end, and may work or clean up still
        self._ends: dict[int, threading.Event] = {}  # of those that are not done with that, nor given up
        self._owners: dict[int, tuple[int, int, int]] = {}  # of the residents
        self._departed: dict[int, RemoteFailure] = {}  # why actors are not here that were, or could not be made
        self._early: dict[int, list[Callable[[Resident | None], None]]] = {}  # calls that came before the actor did
        self._settling = threading.RLock()  # calls come on several threads while the actor is made
        self.patience: float | None = None
        """Seconds for which a call waits here for its actor to be made; None: as long as it takes.

        Where a process took the place of another, references to actors of the old one are still about.
        """
        self.ports: WeakValueDictionary[int, Inbox] = WeakValueDictionary()
        self.fleets: dict[int, Fleet] = {}
        self.failed: dict[int, set[int]] = {}  # by actor made from here: the ranks on which it has failed for good
        self._gate: list[Callable[[], None]] | None = None  # spawns that wait for the bootstrap of this process
        self._boot_failure: RemoteFailure | None = None
        self._is_closed = False

    def send(self, address: Address, message: AnyMessage, payload: Encoded | None = None) -> None:
        """Send to a node, in order, without waiting."""
        if address == self.address:
            self._loop_back(message, payload)
        else:
            self.send_away(address, message, payload)

    @abstractmethod
    def send_away(self, address: Address, message: AnyMessage, payload: Encoded | None) -> None:
        """Send to another node."""

    def _loop_back(self, message: AnyMessage, payload: Encoded | None) -> None:
        def answer(reply: AnyMessage, payload: Encoded | None) -> None:
            self.reactor.schedule(lambda: self.deliver(self.address, reply, frames_of(payload)))

        # Even within a process arguments are copies: an actor's state is its own.
        self.receive(message, frames_of(payload), answer)

    def fleet(self, mesh: int, axes: dict[str, int]) -> Fleet:
        """The way to the ranks of a mesh that this node was told of."""
        if mesh not in self.fleets:
            self.fleets[mesh] = RemoteFleet(self, mesh, axes)
        return self.fleets[mesh]

    def deliver(self, source: Address, message: AnyMessage, frames: Frames) -> None:
        """An answer, or something said before it, for a call that went out from here."""
        fleet = self.fleets.get(source[0])
        if isinstance(fleet, RemoteFleet):
            if isinstance(message, Note):
                fleet.deliver_note(source[1], message, frames)
            else:
                assert isinstance(message, Reply | Answer), message
                fleet.deliver(source[1], message, frames)

    def lose(self, address: Address, why: str, is_fault: bool, has_ended: bool = False) -> None:
        """Another node is gone: who waits for it is told, and after a fault also who owns what lived there.

        What actors there had made here ends with their process, where that has ended.

        On any thread: it is known at once, as a new process may be in its place before the loop tells it.
        """
        fleet = self.fleets.get(address[0])
        waiting = fleet.lose(address[1], why) if isinstance(fleet, RemoteFleet) else []
        owners = fleet.owners(address[1]) if isinstance(fleet, RemoteFleet) and is_fault else {}

        def tell() -> None:
            for actor in list(self._early) if is_fault else ():  # it may have been the one that was to make it
                self.reactor.later(LOST_PATIENCE, lambda actor=actor: self._refuse_late(actor))
            tell_lost(waiting, address[1], why)
            for owner, name in owners.items():
                self.supervise(Fault(owner, name, 0, address[1], report_of_death(name, why)))
            if has_ended:
                self._end_orphans(address)

        self.reactor.schedule(tell)

    def revive(self, address: Address) -> None:
        """Another node is there again, as a new process: what was told of the old one holds for its actors only."""
        fleet = self.fleets.get(address[0])
        if isinstance(fleet, RemoteFleet):
            fleet.revive(address[1])

    # What comes in, on the thread that runs the loop.

    def receive(self, message: AnyMessage, frames: Frames, answer: AnswerTo) -> None:
        """A message for somebody here; `answer` leads back to where it came from."""
        if isinstance(message, Call):
            self.take(message, frames, answer)
        elif isinstance(message, Spawn):
            with self._settling:
                if self._gate is not None and message.name != BOOTSTRAP:
                    frames = list(frames)
                    self._gate.append(lambda: self._spawn(message, frames, answer))
                    return
            self._spawn(message, frames, answer)
        elif isinstance(message, StopActor):
            if not (self._gate and self._wait_at_gate(lambda: self._stop(message, answer))):
                self._stop(message, answer)
        elif isinstance(message, PortSend):
            self._to_port(message, frames)
        else:
            assert isinstance(message, Fault), message
            self.supervise(message)

    def _to_port(self, message: PortSend, frames: Frames) -> None:
        inbox = self.ports.get(message.port)
        if inbox is not None:
            try:
                value = codec.decode(frames[0], frames[1:])
            except codec.DecodeError as error:
                inbox.deliver(message.rank, error, False)
            else:
                inbox.deliver(message.rank, value, message.ok)

    def _spawn(self, message: Spawn, frames: Frames, answer: AnswerTo) -> None:
        point = point_in(message.view, self.address[1])
        instance = Instance(message.name, "", point, (*self.address, message.actor))
        frames = list(frames)
        if self._boot_failure is not None or self._is_closed:
            answer(Reply(message.seq, False), codec.encode(self._boot_failure or _STOPPED))
            return

        def on_made(failure: RemoteFailure | None) -> None:
            if message.name == BOOTSTRAP:
                self.reactor.schedule(lambda: self._open_gate(failure))
                failure = failure and mild(failure)
            answer(Reply(message.seq, failure is None, 0.0, True), codec.encode(failure))

        try:
            asked = codec.decode(frames[0], frames[1:])
        except codec.DecodeError as error:
            failure = _unmade(error, instance)
            answer(Reply(message.seq, False), codec.encode(failure))
            self._give_up(instance, failure, message)
            return
        self._settle(instance, asked, message, on_made)

    def _give_up(self, instance: Instance, failure: RemoteFailure, message: Spawn) -> None:
        """An actor cannot be made: who has asked for it knows, and who calls it and its owner are told."""
        self._refuse_early(message.actor, failure)
        self._tell_owner(instance, failure, message)

    def _open_gate(self, failure: RemoteFailure | None) -> None:
        self._boot_failure = failure and mild(failure)
        with self._settling:  # what comes on another thread must not overtake what has waited
            for message in self._gate or ():
                message()
            self._gate = None
        for actor in list(self._early) if failure is not None else ():
            self._refuse_early(actor)

    def _settle(self, instance: Instance, asked: Any, message: Spawn, on_made: OnMade) -> None:
        cls, args, kwargs, creator = asked
        instance.class_name = f"{cls.__module__}.{cls.__qualname__}"
        instance.creator = creator
        shape = shape_of(message.view)
        instance.find_procs = lambda: self.proc_mesh(shape)
        resident = Resident(
            instance,
            cls,
            functools.partial(cls, *args, **kwargs),
            ReplyPort,
            lambda dead: self._on_dead(dead, message),
            self.jobs(message.actor),
            self.begin_run,
            self.flush,
            lambda: self.settle_here(whole_process=False),
        )
        instance.on_stop = lambda reason: self._stop(
            StopActor(0, message.actor, reason, self.outgoing_run()), to_nobody
        )
        with self._settling:
            if self._is_closed:  # since it was looked at: what ends those that are here would miss this one
                on_made(_STOPPED)
                return
            self._owners[message.actor] = message.owner
            try:
                resident.driver.start(on_made, instance.rank, run_of(message))
            except RuntimeError as error:  # no thread is left for it
                del self._owners[message.actor]
                failure = fatal(describe(error), resident)
                on_made(failure)
                self._give_up(instance, failure, message)
                return
            for call in self._early.pop(message.actor, []):
                call(resident)
            self.residents[message.actor] = resident  # now: what comes on another thread must not overtake those

    def take(self, message: Call, frames: Frames, answer: AnswerTo) -> None:
        """A call of an actor here: `receive` for those who know that it is one."""
        if not (self._gate and self._wait_at_gate(lambda: self._admit(message, frames, answer))):
            self._admit(message, frames, answer)

    def _wait_at_gate(self, message: Callable[[], None]) -> bool:
        """Keep a message until the bootstrap of this process is done, if spawns wait for that; whether it is kept."""
        with self._settling:
            if self._gate:
                self._gate.append(message)
            return bool(self._gate)

    def _admit(self, message: Call, frames: Frames, answer: AnswerTo) -> None:
        resident = self.residents.get(message.actor)
        if resident is None:
            with self._settling:
                resident = self.residents.get(message.actor)
                if resident is None and message.actor not in self._departed and self._boot_failure is None:
                    # A third party was told of the actor, and its call has overtaken the order to make it.
                    self._limit_patience(message.actor)
                    early = self._early.setdefault(message.actor, [])
                    early.append(lambda resident: self._take(resident, message, frames, answer))
                    return
        self._take(resident, message, frames, answer)

    def _take(self, resident: Resident | None, message: Call, frames: Frames, answer: AnswerTo) -> None:
        if resident is None:
            if message.wants_reply:
                why = self._boot_failure or self._departed.get(message.actor, _STOPPED)
                answer(Reply(message.seq, False), codec.encode(why))
            return
        point = point_in(message.view, self.address[1]) if message.view is not None else resident.instance.rank
        resident.put(Job(message, frames, point, answer))

    def _limit_patience(self, actor: int) -> None:
        if (patience := self.patience) is not None and actor not in self._early:
            self.reactor.schedule(lambda: self.reactor.later(patience, lambda: self._refuse_late(actor)))

    def _refuse_late(self, actor: int) -> None:
        if actor in self._early:
            self._refuse_early(actor)

    def _refuse_early(self, actor: int, why: RemoteFailure = _STOPPED) -> None:
        with self._settling:
            self._departed.setdefault(actor, why)
            refused = self._early.pop(actor, [])
        for call in refused:
            call(None)

    def _stop(self, message: StopActor, answer: AnswerTo) -> None:
        def stopped() -> None:
            if message.seq:
                talked = self.flush(-1)  # what it said as it cleaned up stands before what the caller says next
                answer(Reply(message.seq, talked=talked), codec.encode(None))

        self._stop_here(message.actor, message.reason, stopped, run_of(message))

    def _end_orphans(self, owner: Address) -> None:
        """End what actors of a node had made here that is gone."""
        for actor in [actor for actor, (*address, _) in list(self._owners.items()) if tuple(address) == owner]:
            self._stop_here(actor, "stopped as the process of its owner is gone", lambda: None)

    def _stop_here(self, actor: int, reason: str, then: Callable[[], None], run: int | None = None) -> None:
        resident = self._take_out(actor)
        self._owners.pop(actor, None)
        self._refuse_early(actor, (resident and resident.failure) or _stopped(reason))  # who failed is known for that
        if resident is None:
            then()
        else:
            self._let_end(actor, resident, then, run)

    def _take_out(self, actor: int) -> Resident | None:
        """It is to end, and the end of this process waits for that. None: it is not here, or was to end before."""
        with self._settling:
            resident = self.residents.pop(actor, None)
            if resident is not None:
                self._ends[actor] = threading.Event()
        return resident

    def _let_end(self, actor: int, resident: Resident, then: Callable[[], None], run: int | None = None) -> None:
        """It ends when it is done with what it works on, for which it has so much time; any thread may ask."""

        def ended() -> None:
            then()
            self._ends.pop(actor).set()

        self._ending.add(resident)
        resident.driver.end(ended, run)
        self.reactor.schedule(lambda: self.reactor.later(CANCEL_SECONDS, resident.driver.cancel))
        self.reactor.schedule(lambda: self.reactor.later(PATIENCE, resident.driver.leave))

    def _on_dead(self, resident: Resident, spawn: Spawn) -> None:
        """An actor here has failed for good: its owner hears of it."""
        failure = resident.failure
        assert failure is not None
        if spawn.name != BOOTSTRAP:  # whoever spawned the processes learns that from `initialized`
            self._tell_owner(resident.instance, failure, spawn)

    def _tell_owner(self, instance: Instance, failure: RemoteFailure, spawn: Spawn) -> None:
        report = (
            f"The actor {instance} and all its descendants have failed:\n"
            f"{failure.type_name}: {failure.message}\n{failure.traceback}"
        )
        mesh, rank, _ = spawn.owner
        fault = Fault(spawn.owner, spawn.name, spawn.actor, self.address[1], report)
        if (mesh, rank) == self.address:
            self.reactor.schedule(lambda: self.supervise(fault))
        else:
            self.send((mesh, rank), fault)

    def supervise(self, fault: Fault) -> None:
        """A mesh that an actor here owns has failed: ask its `__supervise__`, or fail it too."""
        with self._settling:
            self.failed.setdefault(fault.actor, set()).add(fault.rank)
            owner = self.residents.get(fault.owner[2])
        failure = MeshFailure(fault.mesh_name, [fault.rank], fault.report)
        if owner is None:
            self.unhandled(failure)
            return
        owner.driver.put_first(lambda: owners.ask(owner, failure))

    def strike(self) -> list[str]:
        """Interrupt what actors here do; the endpoints that were at work. On the control thread."""
        residents = [*self.residents.values(), *self._ending]
        return strike_all([strike for resident in residents for strike in resident.strikes()])

    @abstractmethod
    def unhandled(self, failure: MeshFailure) -> None:
        """A failure whose owner is not here any more, or is the client."""

    @abstractmethod
    def proc_mesh(self, shape: Shape) -> Any:
        """The mesh of processes that the actors of this node were spawned on."""

    @abstractmethod
    def own_procs(self) -> Any:
        """This process as a mesh of one."""

    @abstractmethod
    def site_of(self, address: Address) -> Site:
        """Where a rank lives."""

    @abstractmethod
    def spawn_procs(self, wanted: MeshSpec, mesh: int | None = None, waiting: Waiting = nullcontext) -> Any:
        """Start a mesh of processes, under this number if one is given; `waiting` as in `wire.deferred.made_whole`."""

    def close(self, patience: float = 0.0) -> None:
        """End the actors of this process; wait up to so many seconds until they have cleaned up.

        Who has made others ends them first, as ever; they are ended here where that takes too long.
        """
        with self._settling:
            self._is_closed = True
        began = time.monotonic()
        self._end([actor for actor in list(self.residents) if not self._has_owner_here(actor)], began + patience * 0.7)
        self._end(list(self.residents), began + patience)

    def _has_owner_here(self, actor: int) -> bool:
        mesh, rank, owner = self._owners.get(actor, (0, 0, 0))
        return (mesh, rank) == self.address and (owner in self.residents or owner in self._ends)

    def _end(self, actors: list[int], deadline: float) -> None:
        """End these; wait for them, and for those that were to end before."""
        for actor in actors:
            if (resident := self._take_out(actor)) is not None:
                self._let_end(actor, resident, lambda: None)
        with self._settling:
            ends = list(self._ends.values())
        for end in ends:
            end.wait(max(0.0, deadline - time.monotonic()))

    def jobs(self, actor: int) -> Jobs:
        """A queue for the messages of a sync actor that is made here."""
        return PlainJobs()

    @abstractmethod
    def outgoing_run(self) -> int:
        """A call is about to go out: the call of the controller that it is made for, so that its text goes there.

        What this thread has printed goes first. -1 in the controller, whose calls are runs themselves.
        """

    @abstractmethod
    def begin_run(self, run: int) -> int:
        """What this thread prints from here on belongs to this call; how much had been said before, for `flush`."""

    @abstractmethod
    def flush(self, said: int) -> bool:
        """What was printed is to be on its way before an answer is; whether anything was, since `said`."""

    def settle_here(self, *, whole_process: bool = True) -> None:
        settle(self, whole_process=whole_process)


def shape_of(view: View) -> Shape:
    """The shape that a view describes."""
    return Shape(view.labels, NDSlice(offset=view.offset, sizes=list(view.sizes), strides=list(view.strides)))


@functools.lru_cache(maxsize=1024)
def point_in(view: View, rank: int) -> Point:
    """The point of a base rank in a view."""
    return shape_of(view).point_of(rank)


def _unmade(error: codec.DecodeError, instance: Instance) -> RemoteFailure:
    """Why an actor could not be made whose class or arguments could not be unpickled."""
    story = describe(error.__cause__ or error).traceback
    return RemoteFailure("DecodeError", str(error), story, None, True, repr(instance))


def mild(failure: RemoteFailure) -> RemoteFailure:
    """The same failure as an ordinary error of the call."""
    return msgspec.structs.replace(failure, is_fatal=False, actor="")


def frames_of(payload: Encoded | None) -> Frames:
    """A copy of a payload, as it would arrive."""
    return [] if payload is None else [bytearray(payload.head), *(bytearray(buffer) for buffer in payload.buffers)]


def to_nobody(message: AnyMessage, payload: Encoded | None) -> None:
    """Where an answer goes that nobody waits for."""
