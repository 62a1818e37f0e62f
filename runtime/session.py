"""What a process that controls meshes has once: the loop, the engines, the living meshes; and their end."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from . import meanwhile
from .controller.root import Root
from .controller.roster import Roster
from .engines.base import Engine
from .engines.inproc import InprocEngine
from .engines.local import LocalEngine
from .engines.spec import (
    HOME,
    PYTHON,
    Backend,
    RankSpec,
    Seat,
    Site,
    Standing,
    environment,
    search_path,
    seats_here,
    standings,
    with_named,
)
from .errors import SpawnError
from .here import make_root_by, settle, settled, unsettle
from .mesh import ProcMesh
from .mesh_spec import MeshSpec
from .numbers import begin_anew, new_mesh
from .shape import Shape
from .system import own_streams
from .system.aliases import given
from .system.binding import Binding
from .system.devices import device_at, split_device
from .system.hatch import Hatch, look
from .wire.deferred import Waiting, made_whole
from .wire.reactor import Reactor, When
from .wire.wiring import LinkKind

if TYPE_CHECKING:
    from .engines.courier import Delivery
    from .engines.hosts import HostsEngine

ZYGOTE_MODULES = [
    "torch?",
    "torch._dynamo~",  # what the first optimizer imports, or DDP: 1 s and 100 MB on each rank by itself
    "meshbook.runtime.ranks.worker:warm",
    "meshbook.runtime.ranks.seed:warm",
    "meshbook.runtime.ranks.seed:warm~",
]
"""What the zygote imports; wings above add theirs before the first mesh (see `local.LocalEngine.preload`)."""


_HOSTS = "hosts "
"""How names of engines of several hosts begin."""

_MOST_SECONDS = 10.0
"""Seconds until a mesh that another thread takes down is not waited for any more: its engine kills what is left."""


class Session:
    """The loop, the engines and the rosters of this process."""

    def __init__(self) -> None:
        _refuse_gevent(sys.modules.get("gevent.monkey"))
        own_streams.keep_places()
        self.reactor = Reactor()
        self._engines: dict[str, Engine] = {}
        self._hosted: dict[str, HostsEngine] = {}  # those of several hosts
        self._making = threading.Lock()  # of the two above: programs attach to hosts on threads
        # Of those of this machine alone, which are not to wait for hosts: threads of a program may meet.
        self._opening = threading.Lock()
        self.root = Root(self.reactor, self.engine, _specs_of)
        self.hatch = Hatch(self.reactor)
        self.hatch.open()
        if sys.stdin is not None and sys.stdin.isatty():
            meanwhile.duties.append(look)  # who sits there is asked what ranks that stop are to do

    def engine(self, name: str = "local") -> Engine:
        """The engine of this name; those of several hosts are made by `use_hosts`, of another Python by `use_python`.

        Raises `ValueError` for a name that is none.
        """
        if name not in self._engines:
            if name.startswith(PYTHON):  # a rank has named it, that could not ask it
                self.use_python(name.removeprefix(PYTHON))
            else:
                with self._opening:
                    self._open(name)
        return self._engines[name]

    def _open(self, name: str) -> None:
        if name in self._engines:  # another thread was first
            return
        if name == "local":
            self._engines[name] = LocalEngine(self.reactor, ZYGOTE_MODULES)
        elif name == "inproc":
            self._engines[name] = InprocEngine(self.reactor)
        else:
            known = "local (processes here), inproc (threads, for tests), or what `use_hosts` gave"
            raise ValueError(f"there is no engine {name!r}: {known}")

    def use_python(self, python: str) -> str:
        """The name of the engine whose ranks run in this Python on this machine; it is named as on a command line.

        It has meshbook, of this version, and is the same Python but for its last number. Its ranks see the folders on
        this program's `sys.path`, and their own packages in place of this program's.

        Raises `ValueError` where there is none, and `SpawnError` where it cannot run ranks.
        """
        from .engines.interpreter import ask, find

        found = find(python)
        if found == os.path.abspath(sys.executable):
            return "local"
        name = f"{PYTHON}{found}"
        with self._making:
            if name not in self._engines:
                engine = self._engines[name] = LocalEngine(self.reactor, ZYGOTE_MODULES, ask(found))
                engine.warm()
        return name

    def use_hosts(
        self, hosts: Sequence[str] | int, launch: str = "", keep: float = 0.0, timeout: float | None = None
    ) -> str:
        """The name of the engine of these hosts, by name or number, whose agents `launch` starts (docs/hosts.md).

        Asked for the same hosts again it is the same engine, with its agents. With `keep`, these wait so many seconds
        for the next process that asks for them when this one ends. They have `timeout` seconds to come, 60 by default.

        Names that are addresses, such as `tcp://node1:26600`, are those of worker loops (`use_workers`).

        Raises `ValueError` where the command wants the names of hosts, and there is only a number; and for what is
        neither a name nor an address, such as `node1:26600`.
        """
        names = [f"host{i}" for i in range(hosts)] if isinstance(hosts, int) else list(hosts)
        if isinstance(hosts, int) and "{host}" in launch:
            raise ValueError(f"which hosts? `{launch}` starts each by its name: say --hosts A,B")
        if any("://" in name for name in names):
            if launch or keep:
                what = "--launch" if launch else "--keep"
                raise ValueError(f"{what} does not go with worker loops, which wait on their hosts by themselves")
            return self.use_workers(names, timeout)
        if bare := [name for name in names if re.fullmatch(r"[^:]+:\d+", name)]:
            raise ValueError(
                f"{bare[0]!r} is no name of a host: of a worker loop that waits there, say tcp://{bare[0]}"
            )
        name = f"{_HOSTS}{launch or 'here'}: {','.join(names)}{', kept' if keep else ''}"
        with self._making:
            if name not in self._engines:
                self._add(name, self._launched(launch, names, keep))
        if timeout is not None:
            self._hosted[name].timeout = timeout
        return name

    def _launched(self, launch: str, names: Sequence[str], keep: float) -> HostsEngine:
        from .engines.hosts import HostsEngine, address_towards  # loads zmq, which one machine does without
        from .engines.keeper import Keeper
        from .engines.launch import CommandLauncher

        launcher = CommandLauncher(self.reactor, launch, names)
        addr = address_towards(launcher.names) if launch else "127.0.0.1"
        keeper = Keeper(launch, names, keep) if keep else None
        return HostsEngine(self.reactor, launcher, len(names), ZYGOTE_MODULES, addr, keeper=keeper)

    def use_workers(self, addresses: Sequence[str], timeout: float | None = None) -> str:
        """The name of the engine of hosts on which worker loops wait, at these addresses, which are their names.

        Asked for the same again it is the same engine. The loops have `timeout` seconds to answer, 30 by default.
        Raises what `WorkersLauncher` does.
        """
        name = f"{_HOSTS}at {','.join(addresses)}"
        with self._making:
            if name not in self._engines:
                self._add(name, self._at_workers(addresses, timeout))
        return name

    def _at_workers(self, addresses: Sequence[str], timeout: float | None) -> HostsEngine:
        from .engines.hosts import DIAL_SECONDS, HostsEngine, address_towards
        from .engines.workers import ANSWER_SECONDS, WorkersLauncher

        launcher = WorkersLauncher(self.reactor, addresses, ANSWER_SECONDS if timeout is None else timeout)
        addr = address_towards(launcher.far[:1]) if launcher.far else "127.0.0.1"
        patience = launcher.patience + DIAL_SECONDS  # of those that have answered the agents are still to come
        return HostsEngine(self.reactor, launcher, len(addresses), ZYGOTE_MODULES, addr, patience)

    def _add(self, name: str, engine: HostsEngine) -> None:
        self._engines[name] = self._hosted[name] = engine

    def use_monarch(self, hosts: Any, job: str = "process", *, timeout: float | None = None, **options: Any) -> str:
        """The name of the engine whose agents Monarch places: on a `HostMesh` of it, or on so many hosts of a job.

        The kinds of jobs and their options are those of docs/clusters.md. Asked for the same again it is the same
        engine, with its hosts. Raises what `MonarchEngine` does.
        """
        told = "".join(f" {name}={options[name]}" for name in sorted(options))
        name = f"{_HOSTS}of Monarch: {f'{hosts} of {job}{told}' if isinstance(hosts, int) else id(hosts)}"
        if name not in self._engines:
            from .engines.hosts import DIAL_SECONDS
            from .engines.monarch import MonarchEngine

            wait = {"timeout": DIAL_SECONDS if timeout is None else timeout}
            self._add(name, MonarchEngine(self.reactor, hosts, job, preload=ZYGOTE_MODULES, **wait, **options))
        if timeout is not None:
            self._hosted[name].timeout = timeout
        return name

    def sync(self, engine: Engine, folder: str, *, is_default: bool = False) -> Delivery:
        """Let the hosts of an engine have a copy of a folder as it is now; what was brought.

        If it is the default, it is the folder of all meshes that are spawned through a `HostMesh` from here on.

        Raises `ValueError` for an engine of this machine, whose ranks read the folder itself, and `SpawnError` where it
        cannot be.
        """
        hosts = next((each for each in self._hosted.values() if each is engine), None)
        if hosts is None:
            raise ValueError(f"engine {engine.name!r} has no hosts to bring {folder} to: its ranks read it themselves")
        delivery = hosts.sync(Path(os.path.realpath(folder)))
        if is_default:
            hosts.folder = str(delivery.folder)
        return delivery

    def release(self, engine: Engine, *, detach: bool = False) -> None:
        """Give hosts back that no mesh is on any more: their agents end. Other engines stay warm.

        With `detach`, agents that are kept wait for who asks for them next.
        """
        name = next((name for name, each in self._hosted.items() if each is engine), "")
        if name and all(roster.engine is not engine for roster in list(self.root.rosters.values())):
            del self._engines[name]
            hosts = self._hosted.pop(name)
            (hosts.close if detach else hosts.give_back)()

    def seats_on(self, site: Site, num_ranks: int) -> Sequence[Seat]:
        """Seats for a mesh that is laid over these hosts. Raises what `HostsEngine.seats_on` does."""
        if site.engine not in self._hosted:
            raise SpawnError(f"hosts {', '.join(site.hosts)} were given back: attach to them again")
        return self._hosted[site.engine].seats_on(site.hosts, num_ranks // len(site.hosts))

    def folder_on(self, engine: str) -> str:
        """The folder that meshes on these hosts have a copy of, by default; empty where they have none."""
        return self._hosted[engine].folder if engine in self._hosted else ""

    def kept_since(self, engine: str) -> float | None:
        """Since when agents of an engine live that another process had left, in seconds since the epoch."""
        return self._hosted[engine].kept_since if engine in self._hosted else None

    def note_mesh(self, engine: str, mesh: str, line: str) -> None:
        """Keep the line that brought a mesh up on an engine whose agents are kept."""
        if engine in self._hosted:
            self._hosted[engine].note_mesh(mesh, line)

    def spawn(
        self,
        specs: Sequence[RankSpec],
        engine: str = "local",
        how: str = "auto",
        waiting: Waiting = contextlib.nullcontext,
    ) -> Roster:
        """Start the ranks of a mesh."""
        return self.root.roster(specs, engine, how, waiting)

    def close(self) -> None:
        """Take all meshes down, then the engines, then the loop."""
        with contextlib.ExitStack() as end:
            end.callback(self.reactor.close)
            for engine in self._engines.values():
                end.callback(engine.close)
            # A mesh nobody refers to any more has lived on until now: dropping a name stops nothing.
            for roster in list(self.root.rosters.values()):
                end.callback(self._take_down, roster)
            end.callback(self.root.close)
            end.callback(self.hatch.close)
            if look in meanwhile.duties:
                meanwhile.duties.remove(look)

    def _take_down(self, roster: Roster) -> None:
        """Where another thread does, wait for it: it needs the loop, which closes next."""
        roster.stop(grace=0.5)
        self.reactor.wait(When(lambda: self.root.rosters.get(roster.mesh) is not roster), _MOST_SECONDS)


def _refuse_gevent(monkey: Any) -> None:
    """Raises `SpawnError` where meshes would hang without a word (tried with gevent 26.9).

    So they do on its sockets, and in its threads where Python's own `select` blocks them all.
    """
    if monkey is None:
        return
    has_threads = monkey.is_module_patched("threading") and not monkey.is_module_patched("select")
    if has_threads or monkey.is_module_patched("socket"):
        raise SpawnError(
            f"gevent has patched the {'threads' if has_threads else 'sockets'} of this process (monkey.patch_all), and "
            "meshes would hang in it: hold them in a process of their own, or call patch_all(socket=False)"
        )


_lock = threading.Lock()  # two threads of a program may both be first
_closing = threading.Lock()
_session: Session | None = None


def session() -> Session:
    """The session of this process, made at the first use and closed when the interpreter exits."""
    global _session
    with _lock:
        if _session is None:
            _session = Session()
            settle(_session.root)
            atexit.register(_close_at_exit)
        return _session


def has_meshes() -> bool:
    """Does this process hold meshes, or is it a rank of one?"""
    found = settled()
    return found is not None and (not isinstance(found, Root) or bool(found.rosters))


def close() -> None:
    """End everything of meshbook in this process; a later use begins anew."""
    global _session
    with _closing:
        try:
            if _session is not None:
                _session.close()  # without `_lock`: ranks say something as they end, and who hears it may ask for names
        finally:
            with _lock:
                _session = None
                unsettle()
                begin_anew()
                atexit.unregister(_close_at_exit)


def _close_at_exit() -> None:
    """Who presses stop once more as the program ends waits for nothing, and sees none of our frames."""
    with contextlib.suppress(KeyboardInterrupt):
        close()


def _begin_anew() -> None:
    """In a forked child of the notebook: it may have meshes of its own, and must not touch its parent's."""
    global _lock, _closing, _session
    _lock, _closing = threading.Lock(), threading.Lock()  # a thread that is not here may have held the old ones
    _session = None
    unsettle()
    begin_anew()


make_root_by(lambda: session().root)
os.register_at_fork(after_in_child=_begin_anew)


def specs_for(
    axes: Mapping[str, int],
    *,
    mesh: int | None = None,
    has_bootstrap: bool = False,
    device: str = "cpu",
    backend: Backend = "auto",
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    preload: Sequence[str] = (),
    path: Sequence[str] | None = None,
    link: LinkKind = "auto",
    folder: str = "",
    seats: Sequence[Seat] = (),
    engine: str = "",
    bindings: Sequence[Binding] = (),
) -> list[RankSpec]:
    """The specs of a mesh, one for each point of `axes` in row-major order.

    `seats` says where its ranks live, on hosts of this `engine`; by default on this host. `device` is `cpu`, `cuda`,
    where the `i`-th rank of a host gets `cuda:i`, or `cuda/2`, where ranks share two GPUs a host (`devices`). `link` is
    the kind of links to them on their host (`wire.wiring`). `folder` is one that was brought to the hosts
    (`Session.sync`). `bindings` says what the ranks of each host are bound to (`binding`).
    """
    folder = os.path.realpath(folder) if folder else ""
    world_size = len(Shape.row_major(axes)) if axes else 1
    seats = seats or seats_here(world_size)
    of_mesh = RankSpec(
        rank=0,
        world_size=world_size,
        local_rank=0,
        local_world_size=1,
        axes=dict(axes),
        mesh=mesh or new_mesh(),
        has_bootstrap=has_bootstrap,
        token="",
        env=dict(env or {}),
        cwd=_inside(folder, cwd or _working_folder()),
        path=tuple(_inside(folder, each) for each in _search_path(env or {}, path)),
        bindings=tuple(map(dict, bindings)),
        names=given(sys.modules),
        device=device,
        shared_gpus=split_device(device)[1],
        backend=backend,
        preload=tuple(preload),
        link=link,
        folder=folder,
        engine=engine,
        master_addr=seats[0].addr,
    )
    return [_seated(of_mesh, seat, standing) for seat, standing in zip(seats, standings(seats), strict=True)]


def _search_path(env: Mapping[str, str], path: Sequence[str] | None) -> list[str]:
    """What is said, or what of the program's own ranks may need, and what their environment adds to it."""
    return search_path(path) if path is not None else with_named(search_path(sys.path), {**os.environ, **env})


def _seated(of_mesh: RankSpec, seat: Seat, standing: Standing) -> RankSpec:
    """The spec of one rank of a mesh. On another host it has the environment there."""
    env = {**({} if seat.host else os.environ), **of_mesh.env}
    return replace(
        of_mesh,
        rank=standing.rank,
        local_rank=seat.local_rank,
        local_world_size=seat.local_world_size,
        env=environment(env, standing),
        device=device_at(of_mesh.device, seat.local_rank),
        host=seat.host,
        host_addr=seat.addr,
    )


def _working_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise SpawnError(
            "the working directory of this program was removed: os.chdir(...) to one that is there"
        ) from None


def _inside(folder: str, path: str) -> str:
    """A path, without the links by which it leads into the folder, if it does."""
    real = os.path.realpath(path) if folder and path else ""
    return real if real and Path(real).is_relative_to(folder) else path


def spawn_procs(axes: Mapping[str, int], engine: str = "local", how: str = "auto", **options: Any) -> ProcMesh:
    """A process mesh of these axes, where the engine has room for it.

    A `folder` among the options is brought to the hosts before. Raises what `Engine.seats` and `Session.sync` do.
    """

    def begin(waiting: Waiting) -> ProcMesh:
        with waiting():
            place = session().engine(engine)
            seats = place.seats(axes)
            if options.get("folder"):
                session().sync(place, options["folder"])
            specs = specs_for(axes, seats=seats, engine=engine, **options)
        return ProcMesh(session().spawn(specs, engine, how, waiting), Shape.row_major(axes))

    return made_whole(begin, undo=lambda procs: procs.roster.stop(grace=0))


def _specs_of(wanted: MeshSpec, mesh: int | None) -> list[RankSpec]:
    is_here = wanted.site.hosts == HOME.hosts
    return specs_for(
        wanted.axes,
        mesh=mesh,
        has_bootstrap=wanted.bootstrap is not None,
        env=wanted.env,
        bindings=wanted.bindings,
        seats=() if is_here else session().seats_on(wanted.site, math.prod(wanted.axes.values())),
        engine=wanted.site.engine,
        folder=session().folder_on(wanted.site.engine),
    )
