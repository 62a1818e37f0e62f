"""The root node: the controller's own process, its way to all ranks, and where unhandled failures end."""

from __future__ import annotations

import asyncio
import math
import secrets
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, cast

from ..actor import Actor, endpoint
from ..adverbs import Gather, view_of
from ..engines.base import Engine, Party, refer
from ..engines.spec import HOME, RankSpec, Site
from ..fleet import Fleet
from ..future import Future, Promise
from ..mesh import ProcMesh
from ..mesh_spec import MeshSpec
from ..node import Address, Node
from ..numbers import SERVICES, is_own
from ..orders import BOOTSTRAP, Birth
from ..ranks.place import axes_text
from ..ranks.seed import heeding
from ..scope import CLIENT
from ..shape import Shape
from ..supervision import MeshFailure, default_fault_hook, raise_unhandled, report_of_death
from ..system import own_streams
from ..wire import codec
from ..wire.codec import Encoded
from ..wire.deferred import Waiting
from ..wire.lane import Frames
from ..wire.messages import AnyMessage, Connect, Died, Fault, Forwarded, Revived, Spawn
from ..wire.reactor import Reactor
from .audiences import ECHO, Audiences
from .expected import Expected
from .long_calls import LongCalls
from .reshape import Reshape
from .root_services import RootServices
from .roster import Roster

FOREIGN = "it belongs to another program, or to what was shut down in this one: spawn it again"
"""What is said of a mesh that this program has not started."""

SpawnRanks = Callable[[MeshSpec, int | None], Sequence[RankSpec]]


class Root(Node):
    """The controller as a node."""

    def __init__(self, reactor: Reactor, engine: Callable[[str], Engine], specs: SpawnRanks) -> None:
        super().__init__((0, 0), reactor)
        self.rosters: dict[int, Roster] = {}
        self.audiences = Audiences()
        self._gone: dict[int, str] = {}  # meshes that were, and why they are not any more
        self._expected: dict[int, list[Callable[[Fleet], Any]]] = {}  # what waits for a mesh that is being started
        self._awaited: dict[int, list[tuple[Roster, int, Connect]]] = {}  # for meshes that are not there yet
        self._arriving = threading.Lock()  # of the two above: meshes are started and called on different threads
        self._engine = engine
        self._specs = specs
        self._long_calls = LongCalls(reactor, self.rosters)
        CLIENT.actor_instance.find_procs = self.own_procs
        self._settle_services()

    def _settle_services(self) -> None:
        spawn = Spawn(0, SERVICES, "root services", view_of(Shape.unity()))
        payload = codec.encode((RootServices, (), dict[str, Any](), None))
        self.receive(spawn, [bytearray(payload.head)], lambda message, payload: None)

    def roster(
        self, specs: Sequence[RankSpec], engine: str = "local", how: str = "auto", waiting: Waiting = nullcontext
    ) -> Roster:
        """Start the ranks of a mesh; `waiting` as in `wire.deferred.made_whole`."""
        place = self._engine(engine)
        with waiting():
            place.prepare(specs, how)
        roster = Roster(self.reactor, place, specs, self, how)
        roster.audiences = self.audiences
        with self._arriving:
            for act in self._expected.pop(roster.mesh, []):
                act(roster)
            self.rosters[roster.mesh] = roster
        for who in self._awaited.pop(roster.mesh, []):
            self.reactor.schedule(lambda who=who: self._connect(*who))
        self._long_calls.begin()
        return roster

    def spawn_procs(self, wanted: MeshSpec, mesh: int | None = None, waiting: Waiting = nullcontext) -> ProcMesh:
        engine = wanted.site.engine or default_engine[-1]
        roster = self.roster(self._specs(wanted, mesh), engine, waiting=waiting)
        roster.name = wanted.name
        procs = ProcMesh(roster, Shape.row_major(wanted.axes) if wanted.axes else Shape.unity())
        if wanted.bootstrap is not None:
            roster.readiness.boot(self._boot(roster, wanted.bootstrap))
        return procs

    def _boot(self, roster: Roster, bootstrap: Callable[[], Any]) -> Future[Any]:
        """Run the bootstrap in every process, before any actor is made there."""
        promise: Promise[Any] = Promise(self.reactor)
        shape = Shape.row_major(roster.axes) if roster.axes else Shape.unity()
        ranks = shape.ranks()
        gather = Gather(shape, ranks, "bootstrap", roster, promise)
        payload = codec.encode((Bootstrap, (bootstrap,), dict[str, Any](), None))
        birth = Birth(tuple(ranks), secrets.randbits(62), BOOTSTRAP, view_of(shape), payload)
        roster.spawn_actor(birth, gather)
        return promise.future

    def site_of(self, address: Address) -> Site:
        roster = self.rosters.get(address[0])
        spec = roster.specs.get(address[1]) if roster is not None else None
        return spec.site if spec is not None else HOME

    def own_procs(self) -> ProcMesh:
        return ProcMesh(super().fleet(0, {}), Shape.unity(), is_owned=False)

    def proc_mesh(self, shape: Shape) -> ProcMesh:
        return self.own_procs()

    def fleet(self, mesh: int, axes: dict[str, int]) -> Fleet:
        roster = self.rosters.get(mesh)
        if roster is not None:
            return roster
        why = self._why_gone(mesh) if mesh else ""
        if why is None:
            return Expected(self, mesh, axes)
        fleet = super().fleet(mesh, axes)
        for rank in range(math.prod(axes.values())) if why else ():
            self.lose((mesh, rank), why, False)
        return fleet

    def _why_gone(self, mesh: int) -> str | None:
        """Why a mesh is not there and will not come; None for one that is, or may be on its way."""
        return self._gone.get(mesh) or (None if is_own(mesh) else FOREIGN)

    def when_there(self, mesh: int, axes: dict[str, int], act: Callable[[Fleet], Any]) -> None:
        """Do this with a mesh that may still be on its way; with one that is gone it fails."""
        with self._arriving:
            is_expected = mesh not in self.rosters and self._why_gone(mesh) is None
            if is_expected:
                self._expected.setdefault(mesh, []).append(act)
        if not is_expected:
            act(self.fleet(mesh, axes))

    def call_off(self, mesh: int, axes: dict[str, int], why: str) -> None:
        """A mesh that somebody may wait for is not to come."""
        with self._arriving:
            self._gone[mesh] = why
            waiting = self._expected.pop(mesh, [])
        for act in waiting:
            act(self.fleet(mesh, axes))
        for asked in self._awaited.pop(mesh, []):
            self.reactor.schedule(lambda asked=asked: self._connect(*asked))

    def send_away(self, address: tuple[int, int], message: AnyMessage, payload: Encoded | None) -> None:
        roster = self.rosters.get(address[0])
        if roster is not None:
            roster.post_control(address[1], message, payload)

    def on_other(self, roster: Roster, rank: int, message: AnyMessage, frames: Frames) -> None:
        """A rank says something that is no answer: on the thread that runs the loop."""
        if isinstance(message, Connect):
            self._connect(roster, rank, message)
        elif isinstance(message, Forwarded):
            self._forward(roster, rank, message, frames)
        else:
            self.receive(message, frames, lambda reply, payload: roster.post_control(rank, reply, payload))

    def _connect(self, roster: Roster, rank: int, wanted: Connect) -> None:
        with self._arriving:
            other = self.rosters.get(wanted.mesh)
            gone = self._why_gone(wanted.mesh)
            if other is None and gone is None:
                # The ranks' own request for this mesh is on its way to the actor that serves it.
                self._awaited.setdefault(wanted.mesh, []).append((roster, rank, wanted))
                return
        if other is None or wanted.rank not in other.alive():
            why = gone if other is None else other.why_dead(wanted.rank)
            roster.post_control(rank, Died(wanted.mesh, wanted.rank, why or "is gone"))
        else:
            one, two = Party(roster.crew, roster.mesh, rank), Party(other.crew, other.mesh, wanted.rank)
            is_direct = wanted.is_direct and other.engine is roster.engine
            (roster.engine.introduce if is_direct else refer)(one, two)

    def _forward(self, roster: Roster, rank: int, message: Forwarded, frames: Frames) -> None:
        """Hand on what one rank says to another; one that is gone is passed over, as both are told elsewhere."""
        other = self.rosters.get(message.mesh)
        if other is not None:
            other.post_control(message.rank, Forwarded(roster.mesh, rank), Encoded(b"", [memoryview(frames[1])]))

    def on_stopped(self, roster: Roster) -> None:
        if not roster.alive():
            self._gone[roster.mesh] = roster.how_stopped
            ECHO.forward(roster, None)
            self.rosters.pop(roster.mesh, None)

    def on_rank_gone(self, roster: Roster, rank: int, why: str) -> None:
        """Tell everybody who may know it, and the owners of what lived there."""
        is_fault = not roster.is_expected(rank)
        self._tell_all(Died(roster.mesh, rank, why, is_fault, has_ended=True))
        self.lose((roster.mesh, rank), why, is_fault, has_ended=True)
        services = self.residents.get(SERVICES)
        if services is not None:
            services.put(lambda: cast("RootServices", services.actor).end_leases_of((roster.mesh, rank)))
        if roster.is_stopped:
            self.on_stopped(roster)
            return
        for owner, name in roster.births.owners(rank).items() if is_fault else ():
            fault = Fault(owner, name, 0, rank, report_of_death(name, why))
            if owner[:2] == self.address:
                self.supervise(fault)
            else:
                self.send(owner[:2], fault)

    def _tell_all(self, message: AnyMessage) -> None:
        for roster in list(self.rosters.values()):
            for rank in roster.alive():
                roster.post_control(rank, message)

    def on_renumbered(self, roster: Roster, plan: Reshape, old: int) -> None:
        """A resize gave ranks other numbers, and their mesh another one: no old view can reach a wrong rank."""
        why = f"the mesh was resized to {axes_text(plan.new)}, which gave ranks other numbers: spawn actors again"
        self._gone[old] = why
        self.rosters[roster.mesh] = self.rosters.pop(old)
        services = self.residents.get(SERVICES)
        if services is not None:
            owners = {(old, rank): (roster.mesh, number) for rank, number in plan.kept.items()}
            services.put(lambda: cast("RootServices", services.actor).rename_owners(owners))
        for rank in plan.kept:
            self._tell_all(Died(old, rank, why, False))
            self.lose((old, rank), why, False)

    def on_rank_back(self, roster: Roster, rank: int) -> None:
        """A new process is in the place of one that was gone: tell everybody who may have been told of that."""
        for other in list(self.rosters.values()):
            for state in other.states.values():
                if state.exit is None and (other is not roster or state.rank != rank):
                    other.post_control(state.rank, Revived(roster.mesh, rank))

    def outgoing_run(self) -> int:
        return -1

    def begin_run(self, run: int) -> int:
        """What actors of the client print goes where the client's own text goes."""
        return 0

    def flush(self, said: int) -> bool:
        own_streams.flush()
        return False

    def supervise(self, fault: Fault) -> None:
        is_told = False
        for roster in list(self.rosters.values()):
            made = roster.births.made.get(fault.actor)
            if made is not None:
                made.failed.add(fault.rank)
                is_told = is_told or fault.rank in made.remaking
        if not is_told:
            super().supervise(fault)

    def unhandled(self, failure: MeshFailure) -> None:
        """Call what the user has put at `meshbook.runtime.unhandled_fault_hook`; not on the loop, which it may need."""
        hook = getattr(sys.modules.get("meshbook.runtime"), "unhandled_fault_hook", default_fault_hook)
        threading.Thread(target=raise_unhandled, args=(hook, failure), name="meshbook-fault", daemon=True).start()


class Bootstrap(Actor):
    """Runs a bootstrap once, in its constructor. With an endpoint that is sync, as it may run an event loop there."""

    def __init__(self, bootstrap: Callable[[], Any]) -> None:
        with heeding():
            outcome = bootstrap()
            if hasattr(outcome, "__await__"):
                asyncio.run(_awaited(outcome))

    @endpoint
    def idle(self) -> None:
        """There is nothing to do any more."""


async def _awaited(outcome: Any) -> Any:
    return await outcome


default_engine = ["local"]
"""The engine that `spawn_procs` uses: its last entry. Tests put `inproc` there."""
