"""What the root does for actors on ranks: start processes, stop them, keep controllers. An actor of its own, known by
its number."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..actor import Actor, endpoint
from ..adverbs import Arrivals, view_of
from ..engines.spec import Site
from ..fleet import RemoteFleet
from ..future import Future, Promise
from ..here import node
from ..mesh_spec import MeshSpec
from ..numbers import SERVICES
from ..orders import Order
from ..scope import context
from ..shape import Shape
from ..supervision import MeshFailure, tell
from ..upstairs import porter
from ..wire import codec

if TYPE_CHECKING:
    from ..mesh import ProcMesh
    from ..node import Node
    from .root import Root

A = TypeVar("A", bound=Actor)


class RootServices(Actor):
    """Lives in the root process."""

    def __init__(self) -> None:
        self._leases: dict[int, _Lease] = {}
        self._controllers: dict[str, Any] = {}
        self._failed: dict[str, str] = {}

    def __supervise__(self, failure: MeshFailure) -> bool:
        """A controller has failed: whoever asks for it from now on is told. The program goes on, as with Monarch."""
        self._failed[failure.mesh_name] = failure.report()
        _aside(lambda: tell(failure))
        return True

    @endpoint(explicit_response_port=True)
    def spawn_procs(self, port: Any, owner: tuple[int, int], mesh: int, wanted: MeshSpec) -> None:
        """Start a mesh under a number that the caller chose; answers when it is up."""
        root = cast("Root", node())
        lease = self._leases[mesh] = _Lease(owner, wanted.site, math.prod(wanted.axes.values()))

        def start() -> None:
            try:
                procs = root.spawn_procs(wanted, mesh)
            except Exception as error:  # noqa: BLE001 - the rim: who has asked is told, and who waits for the mesh
                _answer(port, error)
                root.call_off(mesh, wanted.axes, str(error))
                lease.call_off()
                return
            procs.initialized.add_done_callback(lambda up: _answer(port, up.exception()))
            lease.begin(procs)

        _aside(start)

    @endpoint(explicit_response_port=True)
    def stop_procs(self, port: Any, mesh: int, why: str) -> None:
        """Take it down."""
        lease, rosters = self._leases.pop(mesh, None), cast("Root", node()).rosters

        def end() -> None:
            if lease is not None:
                lease.end(why)
                if mesh in rosters:  # its ranks may answer before it is noted; where hosts are missing, it may never be
                    lease.wait()

        _aside(end, port)

    @endpoint
    def site_of(self, address: tuple[int, int]) -> Site:
        """Where a rank lives, or will."""
        lease = self._leases.get(address[0])
        return node().site_of(address) if lease is None else lease.site_of(address[1])

    def end_leases_of(self, owner: tuple[int, int]) -> None:
        """A rank is gone: what its actors had started ends too."""
        for mesh in [mesh for mesh, lease in self._leases.items() if lease.owner == owner]:
            lease = self._leases.pop(mesh)
            _aside(lambda lease=lease: lease.end("its owner is gone"))

    def rename_owners(self, names: Mapping[tuple[int, int], tuple[int, int]]) -> None:
        """A resize gave ranks other numbers: what their cells had started is theirs still."""
        for lease in self._leases.values():
            lease.owner = names.get(lease.owner, lease.owner)

    @endpoint(explicit_response_port=True)
    def bring_debugger(self, port: Any, mesh: int) -> None:
        """A rank of this mesh, which runs no cells, is at its first breakpoint; answers when it can stop there."""
        root = cast("Root", node())
        _aside(lambda: porter().bring_debugger(root.rosters[mesh]), port)

    @endpoint
    def controller(self, name: str, cls: type[Actor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The one actor of this name, made if there is none. Raises `ValueError` if it has failed."""
        if name in self._failed:
            raise ValueError(f"Failure on {name}: {self._failed[name]}")
        if name not in self._controllers:
            self._controllers[name] = node().own_procs().spawn(name, cls, *args, **kwargs)
        return self._controllers[name]


class _Lease:
    """A mesh of so many ranks that is started on these hosts for an actor on a rank."""

    def __init__(self, owner: tuple[int, int], site: Site, num_ranks: int) -> None:
        self.owner = owner
        self._site = site
        self._num_each = num_ranks // len(site.hosts)
        self._procs: ProcMesh | None = None
        self._why_over = ""
        self._lock = threading.Lock()  # of the two above: it may be ended while it is on its way
        self._has_come = threading.Event()

    def begin(self, procs: ProcMesh) -> None:
        """It is there; one that was ended before ends now."""
        with self._lock:
            self._procs, why = procs, self._why_over
        try:
            if why:
                procs.stop(why).get()
        finally:
            self._has_come.set()

    def call_off(self) -> None:
        """It does not come."""
        self._has_come.set()

    def end(self, why: str) -> None:
        """End it; one that is on its way ends as soon as it has come."""
        with self._lock:
            self._why_over, procs = why, self._procs
        if procs is not None:
            procs.stop(why).get()

    def wait(self) -> None:
        """Until it has come, and ended if it was to, or does not come."""
        self._has_come.wait()

    def site_of(self, rank: int) -> Site:
        return Site(self._site.engine, (self._site.hosts[rank // self._num_each],))


def _answer(port: Any, error: Exception | None) -> None:
    if port.is_used:
        return  # the program ends: this actor has ended before, and who asked was told
    if error is None:
        port.send(None)
    else:
        port.exception(error)


def _aside(work: Callable[[], object], port: Any = None) -> None:
    """Do what takes its time, such as hosts that are on their way: others are served meanwhile.

    `port` hears how it ended. (An endpoint with a port that raises itself would end the actor.)
    """

    def run() -> None:
        try:
            work()
        except Exception as error:  # the rim: who has asked is told
            if port is None:
                raise
            _answer(port, error)
        else:
            if port is not None:
                _answer(port, None)

    threading.Thread(target=run, name="meshbook-aside", daemon=True).start()


def ask_root(here: Node, method: str, *args: Any) -> Future[Any]:
    """Call the services of the root."""
    fleet = here.fleet(0, {})
    promise: Promise[Any] = Promise(here.reactor)
    shape = Shape.unity()
    answer = Arrivals(f"root.{method}", fleet, [promise])
    fleet.call([0], Order(SERVICES, method, codec.encode((args, dict[str, Any]())), view_of(shape)), answer)
    return promise.future


def get_or_spawn_controller(name: str, Class: type[A], *args: Any, **kwargs: Any) -> Future[A]:
    """The actor of this name that all processes share, living with the client; made at the first call.

    Later calls ignore `Class` and the arguments.
    """
    return ask_root(node(), "controller", name, Class, args, kwargs)


class Leased(RemoteFleet):
    """A mesh that the root started for an actor on a rank, which owns it."""

    def __init__(self, here: Node, mesh: int, wanted: MeshSpec) -> None:
        super().__init__(here, mesh, wanted.axes)
        here.fleets[mesh] = self
        self.owner = context().actor_instance.address
        self._ready = ask_root(here, "spawn_procs", here.address, mesh, wanted)

    def ready(self) -> Future[bool]:
        promise: Promise[bool] = Promise(self.reactor)
        promise.follow(self._ready, True)
        return promise.future

    def stop_all(self, reason: str) -> Future[None]:
        self.is_stopped = True
        return ask_root(self._node, "stop_procs", self.mesh, reason)
