"""Hosts: where processes are spawned. There is this machine; `workers` has those on which worker loops wait."""

# pyright: reportPrivateUsage=false
# Meshes keep their members private: every public one is a name that no endpoint of an actor can have.

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

from .bootstrap import Bootstrap, BootstrapCommands, envs_of, shared, with_envs
from .engines.spec import HOME, PYTHON, Site
from .errors import checks_for_caller
from .future import Future, done
from .here import node, settled
from .mesh import ProcMesh, check_name
from .mesh_spec import NAMELESS, MeshSpec
from .node import ROOT
from .scope import context
from .shape import MeshTrait, Region, Shape
from .system.binding import Binding, check
from .system.unguarded import refuse_unguarded
from .wire.deferred import Waiting, made_whole


class HostMesh(MeshTrait):
    """A mesh of hosts. `this_host()` is the machine this code runs on, a mesh without axes."""

    def __init__(self, shape: Shape, hosts: Hosts | None = None, is_owned: bool = True) -> None:
        self._shape = shape
        self._hosts = hosts or Hosts()
        self._is_owned = is_owned

    def _new_with_shape(self, shape: Shape) -> Self:
        return type(self)(shape, self._hosts, is_owned=False)

    @checks_for_caller
    def spawn_procs(
        self,
        per_host: Mapping[str, int] | None = None,
        bootstrap: Bootstrap | None = None,
        name: str | None = None,
        proc_bind: Sequence[Binding] | None = None,
        bootstrap_command: BootstrapCommands | None = None,
    ) -> ProcMesh:
        """Start processes on each host, `per_host` of them; returns at once, while they come up.

        On hosts that are still on their way it waits until they are there. `bootstrap` runs once in each process before
        any actor does. `bootstrap_command` sets environment variables there before
        (`default_bootstrap_cmd().with_env(...)`, or a function from the point of a process to that). `proc_bind` says
        for each process of a host which processors and memory it has: `[{"cpus": "0-3"}, {"cpunodebind": "1"}]`
        (`binding`).

        Raises:
            ValueError: an axis of `per_host` is one of the hosts' or has no rank, or `proc_bind` has a wrong length or
                binds to what is none.
            TypeError: a size is no whole number, a name no text, `bootstrap` no function or `bootstrap_command` none.
            RuntimeError: the host mesh was shut down, a host is not to come (`SpawnError`), or a module does this as a
                rank imports it.
        """
        refuse_unguarded()
        if self._hosts.is_down:
            raise RuntimeError("HostMesh has already been shut down")
        axes = _axes({} if per_host is None else per_host)
        overlap = sorted(set(axes) & set(self._labels))
        if overlap:
            raise ValueError(f"per_host labels {overlap} overlap with host labels {self._labels}")
        _check_binding(proc_bind, axes)
        check_name(NAMELESS if name is None else name, "processes")
        if bootstrap is not None and not callable(bootstrap):
            raise TypeError(f"bootstrap must be a function without arguments, not {bootstrap!r}")
        sizes = {**self.sizes, **axes}
        envs = envs_of(bootstrap_command, Shape.row_major(sizes).extent)
        bindings = tuple({key: str(value) for key, value in each.items()} for each in proc_bind or ())
        begin = with_envs(envs, bootstrap)
        wanted = MeshSpec(sizes, name or NAMELESS, begin, bindings, self._site, shared(envs))
        return made_whole(lambda waiting: self._begin(wanted, waiting), undo=ProcMesh.stop)

    def _begin(self, wanted: MeshSpec, waiting: Waiting) -> ProcMesh:
        procs = node().spawn_procs(wanted, waiting=waiting)
        context().actor_instance.own(procs)
        self._hosts.add(procs)
        return procs

    @property
    def _site(self) -> Site:
        return self._hosts.site(self._shape.ranks())

    @property
    def initialized(self) -> Future[bool]:
        """Done when all hosts are there; fails with `SpawnError`, which names the first that is not to come."""
        return self._hosts.ready

    @property
    def region(self) -> Region:
        return self._shape.region

    @property
    def is_fake_in_process(self) -> bool:
        return False

    @property
    def stream_logs(self) -> bool:
        return False

    def with_python_executable(self, python_executable: str) -> HostMesh:
        """The same host, whose ranks run in this Python, such as that of a virtual environment.

        It has meshbook, of this version, and is the same Python but for its last number. Ranks see the folders on
        the program's `sys.path`, and their own packages in place of the program's.

        Raises:
            ValueError: there is no such Python.
            SpawnError: it cannot run ranks; on a rank only `spawn_procs` says so.
            NotImplementedError: these are other hosts than this machine, whose agents say what ranks run in there.

        Example:
            trainers = this_host().with_python_executable("/opt/train/bin/python").spawn_procs({"gpus": 8})
        """
        if self._hosts.is_elsewhere:
            raise NotImplementedError("ranks of these hosts run in the Python that runs the agent or worker loop there")
        engine = _engine_in(python_executable)
        hosts = Hosts() if engine == "local" else HostsAt(Site(engine, HOME.hosts))
        return HostMesh(self._shape, hosts, self._is_owned)

    async def sync_workspace(self, workspace: object, conda: bool = False, auto_reload: bool = False) -> None:
        """Let hosts of worker loops have a copy of a folder as it is now, for the processes that are spawned there.

        These find it first on their `sys.path`; what of the program's own `sys.path` and working folder is in it means
        the copy. Once more, it brings what has changed also to those that live; what they have imported they keep.
        `workspace` is a path, or has one in its `dirs` as Monarch's `Workspace`, whose names at the other end mean
        nothing here.

        Raises:
            RuntimeError: processes of these hosts read the program's own files, or this is a reference.
            NotImplementedError: there are several folders, or `conda` or `auto_reload` is asked for.
            TypeError: `workspace` is no path and has none.
            SpawnError: the folder cannot be read, or a host does not come or has no room (it is named).
        """
        if conda or auto_reload:
            raise NotImplementedError(f"sync_workspace({'conda' if conda else 'auto_reload'}=True) is not here")
        folder = _folder_of(workspace)
        await asyncio.to_thread(self._hosts.sync, folder)

    @checks_for_caller
    def shutdown(self) -> Future[None]:
        """End what `stop` ends, and on hosts of worker loops these too.

        Raises:
            RuntimeError: it was shut down before, or this is a slice or a reference.
        """
        self._check_owned("shut down")
        self._hosts.is_down = True
        try:
            self._hosts.end()
        finally:
            self._hosts.dismiss()
        return done(None)

    @checks_for_caller
    def stop(self) -> Future[None]:
        """End the processes that were spawned through this mesh; more may be spawned.

        On hosts of worker loops also those that actors of this program have spawned there.

        Raises:
            RuntimeError: it was shut down before, or this is a slice or a reference.
        """
        self._check_owned("stop")
        self._hosts.end()
        return done(None)

    def _check_owned(self, verb: str) -> None:
        if not self._is_owned:
            raise RuntimeError(f"cannot {verb} `HostMesh` that is a reference instead of owned")
        if self._hosts.is_down:
            raise RuntimeError("HostMesh has already been shut down")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._hosts.is_down:
            self.shutdown().get()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._hosts.is_down:
            await asyncio.to_thread(lambda: self.shutdown().get())  # processes have seconds to end: the loop goes on

    def _identity(self) -> tuple[object, ...]:
        return self._labels, tuple(self._ndslice.sizes), self._site

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HostMesh) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __reduce__(self) -> Any:
        return _restore, (self._labels, tuple(self._shape.ndslice.sizes), self._site)

    def __repr__(self) -> str:
        return f"<HostMesh {self._shape}>"


class Hosts:
    """What all views of a host mesh share: the processes that were spawned, and where. Here, on this machine."""

    is_elsewhere = False
    """Are they other machines, or taken for such?"""

    def __init__(self) -> None:
        self.procs: list[ProcMesh] = []
        self.is_down = False

    def add(self, procs: ProcMesh) -> None:
        """Keep a mesh, and forget those that were stopped since."""
        self.procs = [*(mesh for mesh in self.procs if not mesh._is_stopped), procs]

    @property
    def ready(self) -> Future[bool]:
        """Done when they are there."""
        return done(True)

    def site(self, ranks: Sequence[int]) -> Site:
        """Some of them, in this order, for those who start processes there."""
        return HOME

    def end(self) -> None:
        """End the processes that were spawned there."""
        procs, self.procs = self.procs, []
        for mesh in procs:
            mesh.stop().get()

    def sync(self, folder: str) -> None:
        """Let them have a copy of a folder."""
        raise RuntimeError("there is no workspace to bring up to date: processes of this host read your own files")

    def dismiss(self) -> None:
        """Nobody will start processes there again."""


def _engine_in(python: str) -> str:
    """The name of the engine of ranks in this Python."""
    if node().address == ROOT:
        from .session import session

        return session().use_python(python)
    from .engines.interpreter import find

    return f"{PYTHON}{find(python)}"


class HostsAt(Hosts):
    """Hosts of an engine that is known by name: those that another process holds, or this machine in another Python."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self._site = site
        self.is_elsewhere = site.hosts != HOME.hosts

    def sync(self, folder: str) -> None:
        if not self.is_elsewhere:
            super().sync(folder)
        raise RuntimeError("this `HostMesh` is a reference: who has attached to the hosts brings a workspace there")

    def site(self, ranks: Sequence[int]) -> Site:
        return Site(self._site.engine, tuple(self._site.hosts[rank] for rank in ranks))


_this_host: HostMesh | None = None


def this_host() -> HostMesh:
    """The machine this code runs on.

    Example:
        >>> this_host()
        <HostMesh {}>
    """
    global _this_host
    here = settled()
    if here is not None and here.address != ROOT:
        return mesh_at(here.site_of(here.address), {})
    if _this_host is None or not is_in_use():
        _this_host = HostMesh(Shape.unity())
    return _this_host


def is_in_use() -> bool:
    """Has this process asked for its host, and not shut it down?"""
    return _this_host is not None and not _this_host._hosts.is_down  # pyright: ignore[reportPrivateUsage]


def this_proc() -> ProcMesh:
    """The process of the running actor as a mesh of one; on the client, the client's own process."""
    here = node()
    instance = context().actor_instance
    if instance.class_name is not None:
        return instance.proc
    return here.own_procs()


def _restore(labels: tuple[str, ...], sizes: tuple[int, ...], site: Site) -> HostMesh:
    return mesh_at(site, dict(zip(labels, sizes, strict=True)))


def mesh_at(site: Site, sizes: Mapping[str, int]) -> HostMesh:
    """Hosts that somebody else holds as a mesh."""
    shape = Shape.row_major(sizes) if sizes else Shape.unity()
    return HostMesh(shape, HostsAt(site), is_owned=False)


def _folder_of(workspace: Any) -> str:
    """The one folder of a workspace."""
    folders: Any = (workspace,) if isinstance(workspace, str | os.PathLike) else getattr(workspace, "dirs", None)
    if folders is None:
        raise TypeError(f"a workspace is the path of a folder, or has some in `dirs`, unlike {workspace!r}")
    if len(folders) != 1:
        raise NotImplementedError(f"a workspace is one folder here, not {len(folders)}: give the one that has them all")
    return os.fspath(next(iter(folders)))


def _axes(per_host: Any) -> dict[str, int]:
    """The axes a user has given, with their sizes as the plain numbers that can be sent."""
    try:
        axes = dict(per_host)
    except (TypeError, ValueError):
        raise TypeError(f"per_host is a dict of axes and sizes, such as {{'gpus': 2}}, not {per_host!r}") from None
    for label, size in axes.items():
        check_name(label, "an axis")
        if not hasattr(size, "__index__"):
            raise TypeError(f"axis {label!r} has size {size!r}: a size is an int")
    return {label: int(size) for label, size in axes.items()}


def _check_binding(proc_bind: Sequence[Binding] | None, axes: Mapping[str, int]) -> None:
    if proc_bind is None:
        return
    count = len(Shape.row_major(axes)) if axes else 1
    if len(proc_bind) != count:
        raise ValueError(f"proc_bind length ({len(proc_bind)}) must equal procs_per_host ({count})")
    for each in proc_bind:
        check(each)
