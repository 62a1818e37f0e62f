"""The process groups of one rank, made before the first cell needs them.

Every rank of a mesh has an initialised default group as soon as torch is there, a group and a `DeviceMesh`
dimension for each named axis, and a group for each slice it runs cells on. A script's own
`init_process_group` takes their place.

All groups are made without a word between ranks: gloo connects two ranks at the first collective that needs
the pair (`TORCH_GLOO_LAZY_INIT`), NCCL does so by itself. So no rank waits here for a peer that is busy, late
or gone.
"""

from __future__ import annotations

import inspect
import math
import os
import socket
import sys
import warnings
from collections.abc import Callable, Collection
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..ranks.children import is_child
from ..ranks.imports import when_imported
from . import nccl
from .c10d import BURIAL_SECONDS, LONG, Bent, finishes
from .group_plan import GroupPlan
from .meeting import Door, open_store
from .own_init import NO_CELL, Meetings, meeting_of
from .renewal import Members
from .sockets import Port, knock, port_at, shut_connections

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh


class Groups:
    """The process groups of this rank; one per process.

    Example, in a rank:
        groups = Groups(plan)
        groups.start()
        dist.all_reduce(x)                            # the default group: the whole mesh
        dist.all_reduce(x, group=groups.slice_group((0, 1)))
        dist.all_reduce(x, group=groups.device_mesh["dp"].get_group())
        groups.close()
    """

    def __init__(self, plan: GroupPlan) -> None:
        self.plan = plan
        self.trouble = ""
        """Why the last `rebuild` has made no groups: nobody may be waiting for a rank that makes them late."""
        self.are_made = False
        """Whether there were any since the last `close`; the user may have destroyed them."""
        self._bent: Bent | None = None
        self._store: Any = None
        self._served: Any = None  # the store that the next start takes, because it is served from here already
        self._ours: Any = None
        self._known_world: Any = None
        self._checked: tuple[Any, GroupPlan] | None = None
        self._slices: dict[tuple[int, ...], ProcessGroup] = {}
        self._device_mesh: DeviceMesh | None = None
        self._meetings = Meetings()
        self._made_in = NO_CELL  # the user's group
        self.cell = NO_CELL
        """That runs now, set by whoever runs it."""
        self._door: Door | None = None
        self._doors: dict[int, tuple[GroupPlan, Any]] = {}  # by port: the plan of who serves, and the store if it does

    def start(self) -> None:
        """Make the default group and the axis groups: now if torch is imported, else as soon as it is.

        Never waits for the other ranks, except for rank 0 to answer at `master_port`.

        Raises:
            ConnectionError: rank 0 does not answer. While torch is imported later, this is a warning.
        """
        if self.plan.backend == "none" or not self.plan.master_port:
            return
        os.environ.setdefault("TORCH_GLOO_LAZY_INIT", "1")
        # The watchdog of NCCL kills a process whose peers stand in a debugger.
        os.environ.setdefault("TORCH_NCCL_ENABLE_MONITORING", "0")
        if "torch" in sys.modules:
            self._begin()
        else:
            when_imported("torch", self._begin_late)
            self._answer_door()

    @property
    def whole_group(self) -> ProcessGroup | None:
        """The default group, ours or the user's own, if it is one of the whole mesh in its order.

        Groups made beside a former one are gone.
        """
        world = self._world()
        if world is not None and world is not self._known_world:
            self._forget()
            self._known_world = world
        return world

    def _world(self) -> ProcessGroup | None:
        world = self._bent.c10d.GroupMember.WORLD if self._bent is not None else None
        if self._bent is None or world is None:
            return None
        checked = self._checked
        if checked is None or checked[0] is not world or checked[1] is not self.plan:  # to ask takes its time
            dist = self._bent.dist
            if (dist.get_rank(), dist.get_world_size()) != (self.plan.rank, self.plan.world_size):
                return None
            self._checked = world, self.plan
        return world

    def slice_group(self, ranks: tuple[int, ...]) -> ProcessGroup:
        """The group of exactly these ranks, ascending; all of them ask for it, the others need not.

        The whole mesh is the default group. Asking again gives the same group.

        Raises:
            ValueError: this rank is not among `ranks`.
            RuntimeError: there is no default group of the whole mesh.
        """
        if self.plan.rank not in ranks:
            raise ValueError(f"rank {self.plan.rank} is not in the slice {ranks}")
        dist = self._mesh_dist()
        if len(ranks) == self.plan.world_size:
            return dist.group.WORLD
        if ranks not in self._slices:
            self._slices[ranks] = dist.new_group(list(ranks), timeout=LONG, use_local_synchronization=True)
        return self._slices[ranks]

    def has_slice(self, ranks: tuple[int, ...]) -> bool:
        """Is the group of these ranks there already, so that nobody is asked for it?"""
        return len(ranks) == self.plan.world_size or ranks in self._slices

    def has(self, group: object) -> bool:
        """Is this one of the present groups of the mesh, its slices and axes?"""
        return group is self._known_world or any(group is each for each in self._slices.values())

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh with its named axes, for DTensor, FSDP and tensor parallelism.

        Raises:
            RuntimeError: there is no default group of the whole mesh.
        """
        self._mesh_dist()
        if self._device_mesh is None:
            self._device_mesh = self._make_device_mesh()
        return self._device_mesh

    def open_door(self) -> int:
        """Serve a new store from here, for a plan that is to come; the port at which it is reached.

        Any thread may ask, also while the main one waits in a collective.
        """
        addr = self.plan.host_addr
        held = socket.create_server((addr, 0), backlog=1024)
        port = held.getsockname()[1]
        plan = replace(
            self.plan, master_addr=addr, master_port=port, listen_fd=held.detach(), store_rank=self.plan.rank
        )
        dist = sys.modules.get("torch.distributed")
        self._doors[port] = plan, open_store(dist, plan) if dist is not None else None
        return port

    def ports(self) -> set[Port]:
        """The ports that connections of this rank's groups lead to: those of its own gloo groups, and the store's."""
        own = self._bent.ports if self._bent is not None else set[Port]()
        return own | {port_at(self.plan.master_addr, self.plan.master_port)}

    def sequences(self) -> dict[str, int]:
        """How many collectives were issued in each group from here, by what its ranks agree on: name and backend."""
        return self._bent.sequences() if self._bent is not None and self._world() is not None else {}

    def break_off(self, ports: Collection[Port], joined: Collection[str] = ()) -> int:
        """End what waits here in a collective of any group; how many connections to these ports were shut for it.

        Groups `joined` are those to which others have come for that (`nccl.come`).

        Any thread may ask. The groups are of no use until `rebuild`. What went on waiting would keep its group for
        ever: the group's destructor waits for it, on whichever thread lets go of it last.
        """
        bent = self._bent  # another thread may make new groups meanwhile
        if bent is None:
            return 0
        if self.plan.device_type == "cuda":
            nccl.abort(bent.c10d, joined)
        num_shut = shut_connections(ports)
        knock(bent.ports, self.plan.world_size)
        return num_shut

    def move(self, rank: int, axes: dict[str, int]) -> None:
        """The mesh has other axes now, and this is its rank `rank`: what `rebuild` is to make groups for."""
        size = math.prod(axes.values())
        self.plan = replace(self.plan, rank=rank, world_size=size, axes=axes, listen_fd=None)

    def members(self) -> Members | None:
        """All groups of this rank; None where they are not such as `rebuild` can renew."""
        generation = self.plan.generation  # first: the main thread may be about to make others
        return self._bent.members(generation) if self._bent is not None and self._world() is not None else None

    def rebuild(
        self, plan: GroupPlan, ports: Collection[Port] = (), since: int | None = None, kept: Collection[str] = ()
    ) -> None:
        """Drop all groups, also the user's, and start again among the ranks of `plan`.

        But with `since`, those of the names in `kept` are renewed: who holds them goes on with them. What waits on a
        connection to `ports`, or to one of this rank's own, is broken off.

        Raises:
            RuntimeError: there are none that are of generation `since` or later; others would not meet new ones.
        """
        self.break_off(self.ports() | set(ports))
        can_renew = since is not None and self.plan.generation >= since and self.members() is not None
        renews = self._bent if can_renew else None
        if self._bent is not None and renews is None:
            self._bent.holds_wake = True
        if renews is None:
            self.close()
        own, self._served = self._take_door(plan)
        self.plan = replace(plan, listen_fd=own.listen_fd)
        self.trouble = ""
        try:
            if renews is not None:
                self._renew(renews, kept)
            elif since is None:
                self.start()
            else:
                raise RuntimeError(
                    "it has no groups that it could renew as the others do: `%mesh unstick` makes new ones"
                )
        except Exception as error:
            self.trouble = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise

    def _take_door(self, plan: GroupPlan) -> tuple[GroupPlan, Any]:
        """What is served from here for this plan. Doors that were opened before it are for plans nobody follows now."""
        if plan.store_rank != plan.rank or plan.master_port not in self._doors:
            return plan, None
        ports = list(self._doors)  # the oldest first
        for port in ports[: ports.index(plan.master_port)]:
            stale, *store = self._doors.pop(port)
            if store[0] is not None:
                bury(store)
            elif stale.listen_fd is not None:
                os.close(stale.listen_fd)
        return self._doors.pop(plan.master_port)

    def close(self) -> None:
        """Destroy all groups and give torch its own functions back; returns in a moment even if peers are
        gone.

        Every rank must call it before it exits: a process that exits with groups may abort.
        """
        if self._door is not None:
            self._door.shut()
            self._door = None
        if self._bent is None:
            return
        self._forget()
        self._meetings.clear()
        if self._bent.dist.is_initialized():
            self._bent.destroy()
        held, self._ours, self._store = [self._ours, self._store], None, None
        bury(held)
        self._bent.undo()
        self._bent = None
        self.are_made = False

    def _renew(self, bent: Bent, kept: Collection[str]) -> None:
        store, self._served = self._served or open_store(bent.dist, self.plan), None
        former, self._store = [self._store], store
        gone = bent.renew(store, self.plan.generation, kept)
        self._slices = {ranks: group for ranks, group in self._slices.items() if group not in gone}
        bury(former)

    def _begin(self) -> None:
        dist: Any = import_module("torch.distributed")
        if not dist.is_available():
            return
        self._door = None  # its descriptor is the store's now
        store, self._served = self._served or open_store(dist, self.plan), None
        self._store = store
        self._bent = Bent(self._on_user_init)
        self.are_made = True
        hook = sys.excepthook
        self._bent.init(
            self.plan.torch_backend,
            store=dist.PrefixStore("mesh", store),
            rank=self.plan.rank,
            world_size=self.plan.world_size,
            timeout=LONG,
        )
        # torch wraps the hook at each init, to print `[rank0]:`, which the notebook says better.
        sys.excepthook = hook
        self._ours = self._known_world = dist.group.WORLD
        # The groups of the device mesh, and not when it is first asked for: they must come first on every rank, or
        # names would not meet. The mesh itself needs nobody else and costs twice as much.
        for name in self.plan.axes:
            self.slice_group(self.plan.peers(name))

    def _begin_late(self) -> None:
        if self._bent is not None or is_child():
            return  # it was to begin before already, and the plan has changed since; or this is not the rank
        try:
            self._begin()
        except ConnectionError as error:
            # The user's `import torch` must not fail for it.
            warnings.warn(f"no default process group: {error}", RuntimeWarning, stacklevel=2)

    def _answer_door(self) -> None:
        """On rank 0: when another rank knocks at the store, whose server is in torch, import torch for it.

        Otherwise a cell that imports torch on other ranks only would wait for rank 0's first own use of it.
        """
        fd = self.plan.listen_fd
        if fd is not None:
            self._door = Door(fd)

    def _mesh_dist(self) -> Any:
        if self.whole_group is None:
            raise RuntimeError(
                "no default process group of the whole mesh on this rank; dist.init_process_group() makes one"
            )
        assert self._bent is not None
        return self._bent.dist

    def _forget(self) -> None:
        self._slices.clear()
        self._device_mesh = self._known_world = self._checked = None

    def _make_device_mesh(self) -> DeviceMesh:
        torch: Any = sys.modules["torch"]
        make: Callable[..., DeviceMesh] = import_module("torch.distributed.device_mesh").DeviceMesh.from_group
        names = tuple(self.plan.axes)
        if not names:
            raise RuntimeError("this mesh has no axes, so there is no device mesh of them")
        groups = [self.slice_group(self.plan.peers(name)) for name in names]
        if len(groups) == 1:
            return make(groups[0], self.plan.device_type, mesh_dim_names=names)
        ranks = torch.arange(self.plan.world_size).view(*self.plan.axes.values())
        return make(groups, self.plan.device_type, mesh=ranks, mesh_dim_names=names)

    def _on_user_init(self, *args: Any, **options: Any) -> None:
        """The user's `init_process_group`: ours gives way, and what an earlier cell has left.

        Else theirs stands, so that torch says "twice".
        """
        assert self._bent is not None
        bound = inspect.signature(self._bent.init).bind(*args, **options)
        self._give_way()
        prefix = ""
        if (meeting := meeting_of(bound.arguments, self.plan)) is not None:
            cell = self.cell if meeting.size == self.plan.world_size else NO_CELL
            prefix = self._meetings.next(meeting, cell, self._store)
            store = self._bent.dist.PrefixStore(prefix, self._store)
            bound.arguments |= {"init_method": None, "world_size": meeting.size, "rank": meeting.rank, "store": store}
        self._bent.init(*bound.args, **bound.kwargs)
        self._made_in = self.cell
        if prefix:
            self._meetings.note(prefix)

    def _give_way(self) -> None:
        assert self._bent is not None
        c10d = self._bent.c10d
        world = c10d.GroupMember.WORLD
        if self._ours is not None and world is self._ours:
            self._ours = None
            self._forget()
            self._bent.destroy()
        elif world is not None and self._made_in.run and self.cell.run not in (0, self._made_in.run):
            print(f"↻ the process group of {self._made_in.name} gives way to this one", file=sys.stderr)
            self._forget()
            c10d.destroy_process_group()  # as the user would, who need not now
        if c10d.GroupMember.WORLD is None:
            # Part of the default group's name; an init that failed has raised it on this rank alone.
            c10d._world.group_count = 0


def are_destroyed(groups: Groups | None) -> bool:
    """Whether the user has destroyed them all, and no others are there."""
    is_ours = groups is not None and groups.are_made and not groups.trouble
    return is_ours and not sys.modules["torch.distributed"].is_initialized()


def bury(held: list[Any]) -> None:
    """Let go of groups and stores in a thread; `held` must have the last references.

    Where a wait could not be broken off, a destructor waits with it; that of a gloo group has been seen to wait for its
    own thread for ever after peers had died (torch 2.13, `gloo::transport::tcp::Loop::shutdown`).
    """
    finishes(held.clear, BURIAL_SECONDS)
