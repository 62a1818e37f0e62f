"""The engine of several hosts: an agent on each, started by a launcher, owns the ranks there.

Agents dial this process over TCP. Both ends prove by CurveZMQ keys who they are, which are made here for each agent and
handed over by the launcher (`summons`). What an agent says is trusted: it is ours.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..errors import SpawnError
from ..ranks.place import axes_text
from ..system.forks import let_go_in_child
from ..wire.link import Address
from ..wire.messages import Hello, Introduce
from ..wire.reactor import Reactor
from ..wire.zmq_door import Keys
from ..wire.zmq_hub import ZmqHub
from .base import Crew, Engine, Listener, Party, refer
from .courier import Courier, Delivery
from .hosted import HostedCrew
from .keeper import Keeper
from .launch import Launcher
from .remote_agent import PACE
from .remote_host import RemoteHost
from .seating import hosts_of, local_ranks, shares, wanted_hosts
from .spec import RankSpec, Seat
from .summons import Summons
from .versions import Versions, mismatch, own_versions

KEPT_SECONDS = 5.0
"""How long agents that wait for a notebook may take to find it: they try twice a second."""

DIAL_SECONDS = 60.0
"""How long agents may take to come: a queue of a cluster is waited for before, by who made the allocation."""


class HostsEngine(Engine):
    """Makes crews of processes on `num_hosts` hosts.

    It listens at `addr`, an address of this machine that the hosts reach; by default loopback.
    """

    name = "hosts"

    def __init__(
        self,
        reactor: Reactor,
        launcher: Launcher,
        num_hosts: int,
        preload: Sequence[str] = (),
        addr: str = "127.0.0.1",
        timeout: float = DIAL_SECONDS,
        keeper: Keeper | None = None,
    ) -> None:
        self.num_hosts = num_hosts
        self.kept_since: float | None = None
        """Since when its agents live, if another process had left them; in seconds since the epoch."""
        self.folder = ""
        """What was brought for whoever spawns processes there; empty: nothing."""
        self.hosts: list[RemoteHost] = []
        self._reactor = reactor
        self._launcher = launcher
        self._preload = tuple(preload)
        self._addr = addr
        self.timeout = timeout
        """Seconds that agents may take to come."""
        self._keeper = keeper
        self._courier = Courier()
        self._addresses: dict[int, Address] = {}  # by host, that of the agent it has or had last
        self._names = dict(enumerate(launcher.names))
        self._hub: ZmqHub | None = None
        self._wanted = set(range(num_hosts))  # by index, those that are to be there
        self._num_kept = 0  # how many agents of a former notebook are expected
        self._said: set[int] = set()  # hosts that have said what they are called
        self._numbers = itertools.count(1)
        self._starting = threading.Lock()  # meshes may be brought up on several threads
        self._is_closed = threading.Event()
        self._pulse: threading.Thread | None = None
        let_go_in_child(self)

    def warm(self) -> None:
        """Start the agents that are not there, and again those that were lost; they come in the background.

        Raises `SpawnError` where they cannot be started, where they are kept and another notebook is on them, and where
        they were given back.
        """
        with self._starting:
            if self._is_closed.is_set():
                raise SpawnError("these hosts were given back")
            if self._hub is None:
                self._hub = self._listen()
                self._pulse = threading.Thread(target=self._beat, name="meshbook-hosts", daemon=True)
                self._pulse.start()
            missing = [i for i in sorted(self._wanted) if i >= len(self.hosts) or self.hosts[i].trouble]
            if missing:
                self._start(self._hub, missing)

    def _listen(self) -> ZmqHub:
        """Where agents find this process: a new place, or that at which those that were kept look for it."""
        kept = self._keeper.find() if self._keeper is not None else None
        if kept is None:
            return ZmqHub(self._reactor, "tcp", self._addr)
        hub = ZmqHub(self._reactor, "tcp", self._addr, kept.port, Keys(kept.public_key, kept.secret_key))
        try:
            for index, address in enumerate(kept.addresses):
                self._await(hub, index, address)
        except OSError as error:
            hub.close()
            raise SpawnError(f"kept hosts look for a notebook where there is no room for one: {error}") from error
        hub.seal()
        self._num_kept, self.kept_since = len(kept.addresses), kept.since
        self._wanted |= set(range(self._num_kept))
        return hub

    def _await(self, hub: ZmqHub, index: int, known: Address | None = None) -> RemoteHost:
        """Expect the agent of a host, at a new address or at one it has."""
        link, theirs = hub.open(known)
        assert theirs.address is not None
        self._addresses[index] = theirs.address
        name = self._names.setdefault(index, f"host{index}")
        host = RemoteHost(self._reactor, index, name, link, self._greet, self._on_lost, self._words_of)
        self.hosts[index : index + 1] = [host]
        return host

    def _start(self, hub: ZmqHub, missing: Sequence[int]) -> None:
        if not self._launcher.is_one_by_one and self.hosts:
            if len(missing) < self.num_hosts:
                raise SpawnError(f"{self.hosts[missing[0]].trouble}; its launcher cannot start one host alone")
            self.hosts.clear()
        awaited = {index: self._await(hub, index) for index in missing}
        addresses = tuple(self._addresses[index] for index in missing)
        hub.seal()

        def on_end(indices: Sequence[int], why: str) -> None:
            for host in [awaited[index] for index in indices if index in awaited]:
                if host.hello is None:
                    host.lose(why)
                else:  # a launcher that has put its agent into the background is no death of it
                    host.tick()

        keep = self._keeper.seconds if self._keeper is not None else 0.0
        try:
            self._launcher.start(missing, Summons(addresses, self._preload, keep), on_end)
        except BaseException as error:
            for host in awaited.values():  # nobody is to wait for them, and the next try is to start them
                host.lose(str(error))
            raise

    def _wait_here(self, names: Sequence[str] | None = None) -> None:
        """Wait until all hosts are there, or those of these names. Raises `SpawnError` for one that is not to come."""
        self.warm()
        self._wait_kept()
        for host in [self.hosts[index] for index in sorted(self._wanted)]:
            if names is not None and host.name not in names:
                continue
            if not self._reactor.wait(host.settled, self.timeout):
                raise SpawnError(self._why_late(host))
            if host.trouble:
                raise SpawnError(host.trouble)

        if self._keeper is not None and self._hub is not None:
            addresses = [self._addresses[host.index] for host in self.hosts]
            self._keeper.note(self._hub.port, self._hub.keys, addresses)

    def _why_late(self, host: RemoteHost) -> str:
        way = f"it is to dial {self._addr}; MESHBOOK_ADDR names another address of this machine"
        told = [f"host {host.name}: its agent has not come within {self.timeout:g} s: {way}"]
        if words := self._words_of(host):
            told.append(f"  its launcher said: {words}")
        return "\n".join(told)

    def _wait_kept(self) -> None:
        """Wait for agents that were kept, not for long: of those that have ended others are started."""
        deadline, kept = time.monotonic() + KEPT_SECONDS, self.hosts[: self._num_kept]
        self._num_kept = 0
        for host in kept:
            if not self._reactor.wait(host.settled, max(0.0, deadline - time.monotonic())):
                host.lose("its agent, which was to be kept, has ended")
        if any(host.trouble for host in kept):
            self.kept_since = None
            self.warm()

    def sync(self, folder: Path) -> Delivery:
        """Let the hosts that are there have a copy of a folder as it is now, and those that come in their places.

        Ranks whose specs name it find it first on their `sys.path`. Raises what `Courier.bring` does, and `SpawnError`
        where no host is there.
        """
        if not self.hosts:
            self._wait_here()
        living = [host for host in self.hosts if not host.trouble]
        if not living:
            raise SpawnError(f"--sync: {self.hosts[0].trouble}")
        return self._courier.bring(folder, living)

    def note_mesh(self, name: str, line: str) -> None:
        """Keep the line that has brought up a mesh here, where agents are kept."""
        if self._keeper is not None:
            self._keeper.note_mesh(name, line)

    def seats(self, axes: Mapping[str, int]) -> Sequence[Seat]:
        """Waits until all hosts are there; starts again those that were lost."""
        sizes = shares(axes, self.num_hosts)
        self._wanted |= set(range(self.num_hosts))
        self._wait_here()
        return self._seats_at([host.name for host, size in zip(self.hosts, sizes, strict=False) for _ in range(size)])

    def _seats_at(self, names: Sequence[str]) -> Sequence[Seat]:
        """A seat for each rank, by the name of its host."""
        addrs = {host.name: host.hello.addr for host in self.hosts if host.hello is not None}
        sizes = Counter(names)
        return [
            Seat(local, sizes[name], name, addrs[name]) for name, local in zip(names, local_ranks(names), strict=True)
        ]

    def seats_on(self, names: Sequence[str], num_each: int) -> Sequence[Seat]:
        """Seats on hosts of these names, in their order, so many on each; waits for these hosts only.

        Raises `SpawnError` where one is not to come, and `ValueError` where there is none of a name.
        """
        self._wait_here(names)
        known = [host.name for host in self.hosts]
        if unknown := [name for name in names if name not in known]:
            raise ValueError(f"there is no host {unknown[0]!r}: there are {', '.join(known)}")
        return self._seats_at([name for name in names for _ in range(num_each)])

    def reseat(self, axes: Mapping[str, int], kept: Mapping[int, Seat]) -> Sequence[Seat]:
        """Starts hosts that the axes ask for, where the launcher can."""
        num_hosts = wanted_hosts(axes) or self.num_hosts
        if refusal := self._launcher.refusal(num_hosts):
            raise ValueError(f"{axes_text(axes)} wants {num_hosts} hosts, and there are {self.num_hosts}: {refusal}")
        former, self._wanted = self._wanted, self._wanted | set(range(num_hosts))
        try:
            self._wait_here()
        except SpawnError:
            self._wanted = former
            raise
        hosts = self.hosts[:num_hosts]
        stay = {rank: seat.host for rank, seat in kept.items()}
        return self._seats_at(hosts_of(axes, stay, [host.name for host in hosts]))

    def _leave(self, host: RemoteHost) -> bool:
        """A mesh is on it no more: its agent ends, unless another mesh is, or it is kept, or could not come back.

        Whether it ends.
        """
        with self._starting:
            is_free = not host.branches and self._keeper is None and self._launcher.is_one_by_one
            if is_free:
                self._wanted.discard(host.index)
                host.dismiss()
        return is_free

    def num_gpus(self) -> int:
        return min((host.hello.num_gpus for host in self.hosts if host.hello is not None), default=0)

    def prepare(self, specs: Sequence[RankSpec], how: str = "auto") -> None:
        """Have their hosts, with the folder."""
        for name in dict.fromkeys(spec.host for spec in specs):
            self._find(name, specs[0].folder)

    def spawn(self, specs: Sequence[RankSpec], listener: Listener, how: str = "auto") -> Crew:
        folder = specs[0].folder
        find: Callable[[str], RemoteHost] = lambda name: self._find(name, folder)  # noqa: E731
        return HostedCrew(self._reactor, next(self._numbers), find, self._leave, specs, listener, how)

    def _find(self, name: str, folder: str) -> RemoteHost:
        """The host of this name, which has the folder if it was brought to others.

        It is started again where it was lost, and others are left as they are.
        """
        host = next(host for host in self.hosts if host.name == name)
        if host.trouble:
            self._wanted.add(host.index)
            self._wait_here()
        found = self.hosts[host.index]
        self._courier.catch_up(folder, found)
        return found

    def introduce(self, one: Party, other: Party) -> None:
        """Ranks of one host speak directly, those of two by way of this process."""
        assert isinstance(one.crew, HostedCrew) and isinstance(other.crew, HostedCrew)
        here, there = one.crew.host_of(one.rank), other.crew.host_of(other.rank)
        if here is None or there is None:
            return
        if here is there:
            first, second = (one.crew.number, one.mesh, one.rank), (other.crew.number, other.mesh, other.rank)
            here.post(Introduce(first, second))
        else:
            refer(one, other)

    def give_back(self) -> None:
        """End the agents, also those that are kept, and wait for their launchers."""
        if self._keeper is not None:
            self._keeper.drop()
        self.close()

    def close(self) -> None:
        """Let go of the agents: those that are kept wait for the next notebook, others end."""
        with self._starting:
            if self._is_closed.is_set():
                return
            self._is_closed.set()
        if self._hub is None:  # nobody was started; a job may have hosts all the same
            self._launcher.close()
            return
        assert self._pulse is not None
        self._pulse.join()
        # Of agents that are not written down nobody would know: those of an `up` that failed must not wait.
        is_kept = self._keeper is not None and self._keeper.leave()
        for host in self.hosts:
            if is_kept:
                host.close()
            else:
                host.dismiss()
            if host.hello is None:  # nobody would tell its launcher to end
                self._launcher.forget(host.index)
        if is_kept:
            self._launcher.let_go()
        else:
            self._launcher.close()
        self._hub.close()

    def let_go(self) -> None:
        """In a forked child: the agents must end with their controller, not with this process."""
        self._is_closed.set()

    # On the thread that runs the loop.

    def _greet(self, host: RemoteHost, hello: Hello) -> str:
        if not self._launcher.names and host.index not in self._said:
            self._said.add(host.index)  # what a host is called it stays, also when it is started again
            taken = [self._names[index] for index in self._said if index != host.index]
            host.name = hello.host if hello.host not in taken else f"{hello.host}-{host.index}"
            self._names[host.index] = host.name
        self._launcher.hear(host.index)
        return mismatch(Versions(hello.meshbook, hello.python, hello.torch), own_versions())

    def _words_of(self, host: RemoteHost) -> str:
        return self._launcher.last_words(host.index)

    def _on_lost(self, host: RemoteHost) -> None:
        if not self._is_closed.is_set():
            self._launcher.forget(host.index)

    def _beat(self) -> None:
        while not self._is_closed.wait(PACE):
            self._reactor.schedule(self._tick)

    def _tick(self) -> None:
        for host in list(self.hosts):
            host.tick()
        if self._keeper is not None:
            self._keeper.tick(time.monotonic())


def address_towards(names: Sequence[str]) -> str:
    """The address of this machine that hosts of these names reach: `MESHBOOK_ADDR`, or that of the way to the first.

    Example:
        >>> address_towards(["127.0.0.1"])
        '127.0.0.1'
    """
    if own := os.environ.get("MESHBOOK_ADDR"):
        return own
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((names[0].rpartition("@")[2] if names else _ANYWHERE, 9))
        except socket.gaierror:  # a name that only the launcher knows, as in ssh's own configuration
            probe.connect((_ANYWHERE, 9))
        return probe.getsockname()[0]


_ANYWHERE = "192.0.2.1"
"""An address of no machine (RFC 5737): the way to it is that to the world. Nothing is sent."""
