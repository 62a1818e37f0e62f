"""Where torch.distributed is bent to a notebook: timeouts, group names, store connections, a second init.

The rest of the package sees none of it; `Groups` puts it in and takes it out.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Sequence, Set
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ..ranks.room import make_room
from ..system.forks import let_go_in_child
from . import forked, ledger, models, renewal
from .loops import doze, hurry, rest, threads
from .names import ask_no_names
from .sockets import Port, close_all, knock, listening_ports

LONG = timedelta(days=7)
"""The timeout of all groups made without one: a cell may stand in a debugger over a weekend.

A gloo group is dead after a timeout, and an operation's timeout cannot be changed once it was issued."""

LOOK_SECONDS = 1.0
"""How often is looked whether what is waited for can still come."""

BURIAL_SECONDS = 0.5

CONNECT_SECONDS = 2.0

WAKE_SECONDS = 0.5
"""How long groups that were broken off stay, at least, when nobody has them any more."""

_MODULE = "torch.distributed.distributed_c10d"

_FDS_A_GROUP = 8
"""A group has so many descriptors, and two for each of its ranks: it may have met them, and serve the store."""

_GROUPS_A_GENERATION = 100_000
"""Groups that torch numbers are named by how many there were before: fewer than these until they are renewed."""

_worn: dict[int, Any] = {}
"""Groups that were renewed or dropped, by id: destructors of their backends would wait for ever (`_hold_wake`)."""


@dataclass
class _Belongings:
    """Where a group listens, and the threads that came with it."""

    ports: Set[Port] = frozenset()
    threads: Set[str] = frozenset()


class Bent:
    """torch.distributed as it is while this mesh's ranks use it; `undo()` gives torch's own back.

    `on_init` stands in for the user's `init_process_group`: it is called with torch's own function first.
    """

    def __init__(self, on_init: Callable[..., None]) -> None:
        self.c10d: Any = importlib.import_module(_MODULE)
        self.dist: Any = importlib.import_module("torch.distributed")
        self.init: Callable[..., None] = self.c10d.init_process_group
        self.destroy: Callable[..., None] = self.c10d.destroy_process_group
        self.holds_wake = False
        """Whether groups that are destroyed now were broken off, and stay for a moment."""
        self._belongings: dict[int, _Belongings] = {}  # by the id of the group
        self._retired: set[Port] = set()
        """Where the backends listen that were in use before the last renewal."""
        self._made: Counter[str] = Counter()
        self._series = ""
        self._before: list[tuple[Any, str, object]] = []
        self._bend_timeouts()
        self._bend_names()
        self._bend_stores()
        self._bend_init(on_init)
        self._bend_destroy()
        models.watch()
        let_go_in_child(self)

    def let_go(self) -> None:
        """In a forked child: torch's own functions serve it, and the groups are the rank's."""
        self.undo()
        forked.leave(self.c10d, self.dist)

    def undo(self) -> None:
        """Put torch's own functions back, the last one first."""
        while self._before:
            owner, name, value = self._before.pop()
            setattr(owner, name, value)

    @property
    def ports(self) -> set[Port]:
        """Where the gloo groups of this process listen: their connections have one of these ports at one end.

        Those that were destroyed are not among them. A model may hold one on, and lets go of it only while its
        connections are whole and its loop awake.
        """
        return {port for each in list(self._belongings.values()) for port in each.ports}

    def sequences(self) -> dict[str, int]:
        """The number of collectives issued so far in each group, by its name and the kind of its backends.

        Those of gloo and nccl count them.
        """
        counts: dict[str, int] = {}
        for group, name in list(self.c10d._world.pg_names.items()):
            with contextlib.suppress(RuntimeError):
                counts |= {f"{name} {kind}": number for kind, number in renewal.all_issued(group).items()}
        return counts

    def members(self, generation: int) -> renewal.Members | None:
        """The groups of this process; None where one cannot be renewed."""
        return renewal.members(self.c10d, generation)

    def renew(self, store: Any, generation: int, kept: Collection[str]) -> list[Any]:
        """Give groups of these names new backends, which meet at this store, and destroy the others. Those.

        Models that hold them begin their next step anew. Ranks may have made different numbers of groups: names of
        those to come begin with the generation, which all share.

        Raises `OSError` where there are not descriptors enough.
        """
        world = self.c10d._world
        make_room(sum(_FDS_A_GROUP + 2 * group.size() for group in world.pg_map))
        gone = [group for group, name in world.pg_names.items() if name not in kept]
        worn, self._belongings = self._belongings, {}
        for group in gone:
            # One whose making was interrupted has none yet, and torch wants to delete them.
            world.pg_group_ranks.setdefault(group, {})
            _worn[id(group)] = group
            self.destroy(group)
        self._made.clear()
        self._series = f"{generation}/"
        world.group_count = generation * _GROUPS_A_GENERATION
        self._retire(worn.values())
        for group, name in list(world.pg_names.items()):
            own = self.dist.PrefixStore(f"renewed/{generation}/{name}", store)
            free = own if group is self.c10d.GroupMember.WORLD else _connect_again(own)
            with self._noting() as found:
                renewal.renew(group, free, generation)
            self._give(found, group)
            world.pg_map[group] = world.pg_map[group][0], own
            _worn[id(group)] = group
        ledger.forget()
        models.put_back(list(world.pg_map))
        return gone

    def _retire(self, worn: Iterable[_Belongings]) -> None:
        """These backends are not used any more, and never end: what they keep open is closed one renewal later.

        By then they have closed themselves what they are going to close.
        """
        doze({thread for each in worn for thread in each.threads})
        close_all(self._retired)
        self._retired = {port for each in worn for port in each.ports}

    def _put(self, owner: Any, name: str, value: object) -> None:
        self._before.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def _bend_timeouts(self) -> None:
        """`new_group` does not inherit the default group's timeout: it takes these."""
        for name in ("default_pg_timeout", "default_pg_nccl_timeout"):
            if isinstance(getattr(self.c10d, name, None), timedelta):
                self._put(self.c10d, name, LONG)

    def _bend_names(self) -> None:
        """Name a group that only its members make after its ranks and how many they made of it before.

        torch puts in the number of *all* groups this rank has: once two members are also in different other
        groups, they wait for each other under different names, for ever.
        """

        def name_of(ranks: Sequence[int]) -> str:
            joined = "_".join(map(str, ranks))
            self._made[joined] += 1
            name = f"{self._series}{joined}_{self._made[joined]}"
            return hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()

        self._put(self.c10d, "_hash_ranks_to_str", name_of)

    def _bend_stores(self) -> None:
        """Give each group beside the default one a store connection of its own.

        A lazy gloo group waits in its store until a peer has joined, and keeps the connection's lock: with one
        for all, this rank's next `new_group`, and the first collective of any other group, would hang in C++
        behind one that waits for a rank that has died, or that was interrupted long ago.
        """
        original = self.c10d._new_process_group_helper

        @functools.wraps(original)
        def with_free_store(
            size: int, rank: int, ranks: list[int], backend: Any, store: Any, *args: Any, **options: Any
        ) -> Any:
            free = store if self.c10d.GroupMember.WORLD is None else _connect_again(store)
            with self._noting() as found:
                made = original(size, rank, ranks, backend, free, *args, **options)
            self._give(found, made[0])
            return made

        self._put(self.c10d, "_new_process_group_helper", with_free_store)

    @contextlib.contextmanager
    def _noting(self) -> Generator[_Belongings]:
        """A group is made in this block: where it listens is noted, its thread is to rest. Give it to whose it is."""
        found, before, known = _Belongings(), listening_ports(), threads()
        self._belongings[id(found)] = found  # also where the making fails
        try:
            yield found
        finally:
            found.ports, found.threads = listening_ports() - before, threads() - known
            rest(known)

    def _give(self, found: _Belongings, group: Any) -> None:
        self._belongings.pop(id(found), None)  # a handler of the user's may have destroyed all of them meanwhile
        self._belongings[id(group)] = found

    def _bend_init(self, on_init: Callable[..., None]) -> None:
        original = self.init

        @functools.wraps(original)
        def init_process_group(*args: Any, **options: Any) -> None:
            on_init(*args, **options)

        for module in (self.c10d, self.dist):
            self._put(module, "init_process_group", init_process_group)

    def _bend_destroy(self) -> None:
        """Let go of destroyed groups in a thread: their destructors wait for operations that never end."""
        original = self.destroy

        @functools.wraps(original)
        def destroy_process_group(group: Any = None) -> None:
            is_all = group is None or group is self.c10d.GroupMember.WORLD
            groups: list[Any] = list(self.c10d._world.pg_map) if is_all else []
            hurry()
            original(group)
            if is_all:
                ledger.forget()
                self._belongings.clear()
            self._belongings.pop(id(group), None)
            groups = [each for each in groups if id(each) not in _worn]
            if self.holds_wake:
                threading.Thread(target=_hold_wake, args=(groups,), name="mesh-wake", daemon=True).start()
            else:
                finishes(groups.clear, BURIAL_SECONDS)
            rest()

        def knock_and_destroy(group: Any = None) -> None:
            # A collective that was interrupted before its peer had come would keep the store of the next groups busy.
            knock(self.ports, self.dist.get_world_size())
            destroy_process_group(group)

        self.destroy = destroy_process_group
        for module in (self.c10d, self.dist):
            self._put(module, "destroy_process_group", functools.wraps(original)(knock_and_destroy))


def _hold_wake(groups: list[Any]) -> None:
    """Keep groups whose connections were shut until nobody else has them.

    The destructor of such a group may wait for its own thread for ever, which turns in a circle (torch 2.13, one in
    eight right after, one in thirty a second later). A model in DDP that is built again lets go of its group with
    Python's lock, so that its rank would hear nothing any more: so it must not be the last to do so.
    """
    while True:
        time.sleep(WAKE_SECONDS)
        if _most_references(groups) <= _most_references([object()]):
            break
    time.sleep(WAKE_SECONDS)  # a model that has let go of its group may not have ended yet
    groups.clear()


def _most_references(things: list[Any]) -> int:
    """How many there are to one of these, with those of this list and of counting, which depend on the Python."""
    return max((sys.getrefcount(thing) for thing in things), default=0)


def finishes(work: Callable[[], object], seconds: float, look: Callable[[], object] = lambda: None) -> bool:
    """Whether `work`, run in a thread, is done in time; a signal interrupts the waiting, not the work.

    While it takes long, `look` is called every second: what that raises ends the waiting, too.
    """
    thread = threading.Thread(target=work, name="mesh-groups", daemon=True)
    thread.start()
    deadline = time.monotonic() + seconds
    while thread.is_alive() and (left := deadline - time.monotonic()) > 0:
        thread.join(min(left, LOOK_SECONDS))
        if thread.is_alive():
            look()
    return not thread.is_alive()


def _tcp_store(store: Any) -> Any:
    """What `store` is a view of, if that is a `TCPStore`, else None."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return store if type(store).__name__ == "TCPStore" else None


def check_answers(host: str, port: int) -> None:
    """Raises `OSError` where nobody serves a store at this port any more.

    That of a process which is about to be gone takes connections still, for as long as its memory is given back: 10 ms,
    with torch. Who serves hangs up on who hangs up.
    """
    with socket.create_connection((host, port), timeout=CONNECT_SECONDS) as probe:
        probe.shutdown(socket.SHUT_WR)
        probe.recv(1)


def _connect_again(store: Any) -> Any:
    """A connection of its own to where `store` is kept; `store` itself if it has none, or nobody is there any more.

    torch would try for as long as the store is patient, in C, to reach a rank that has died: days. Whoever uses a
    dead store is told at once.
    """
    tcp = _tcp_store(store)
    if tcp is None:
        return store
    ask_no_names(tcp.host)  # whichever thread makes the group
    patience = store.timeout
    try:
        check_answers(tcp.host, tcp.port)
        store.set_timeout(timedelta(seconds=CONNECT_SECONDS))
        own = store.clone()
    except (OSError, RuntimeError):
        return store
    finally:
        store.set_timeout(patience)
    own.set_timeout(patience)
    return own
