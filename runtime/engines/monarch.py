"""Monarch as the one who places agents: on its hosts, whatever job they come from (Slurm, Kubernetes, processes here).

Monarch places and supervises; what is said to ranks, and by them, goes over our own links. The package torchmonarch is
an optional extra, imported when it is first needed: `pip install meshbook[monarch]`, on Linux.
"""

from __future__ import annotations

import math
import secrets
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

from ..wire.reactor import Reactor
from .hosts import DIAL_SECONDS, HostsEngine, address_towards
from .jobs import read_options
from .launch import Launcher, OnEnd
from .monarch_jobs import hosts_of, need_monarch
from .summons import Summons

PLACE_SECONDS = 120.0
"""How long Monarch may take to start a process on each host."""

_END_SECONDS = 5.0
"""How long agents may take to end by themselves."""


def num_hosts(hosts: Any) -> int:
    """How many hosts a host mesh of Monarch has."""
    return math.prod(hosts.sizes.values())


class MonarchEngine(HostsEngine):
    """The engine of hosts that Monarch has, or gets by a job of the kind `job` (`jobs.KINDS`), with its options.

    `hosts` is a `HostMesh` of Monarch, or how many there are to be: a job is waited for, up to `timeout` seconds.

    Raises `SpawnError` where Monarch is not installed or gets no hosts, and `ValueError` for options that are none.
    """

    def __init__(
        self,
        reactor: Reactor,
        hosts: Any,
        job: str = "process",
        *,
        preload: Sequence[str] = (),
        timeout: float = DIAL_SECONDS,
        **options: Any,
    ) -> None:
        options = read_options(job, options)
        is_here = isinstance(hosts, int) and job == "process"
        mesh, end = hosts_of(job, hosts, options, timeout) if isinstance(hosts, int) else (hosts, lambda: None)
        try:
            launcher = MonarchLauncher(reactor, mesh, end)
            addr = "127.0.0.1" if is_here else address_towards([])
            super().__init__(reactor, launcher, num_hosts(mesh), preload, addr, timeout)
        except BaseException:
            end()
            raise


class MonarchLauncher(Launcher):
    """Places agents on a host mesh of Monarch; `end` is called when all have ended.

    Raises `SpawnError` where Monarch is not installed.
    """

    is_one_by_one = True
    names = ()

    def __init__(self, reactor: Reactor, hosts: Any, end: Callable[[], object] = lambda: None) -> None:
        need_monarch()
        self._reactor = reactor
        self._hosts = hosts
        self._num_hosts = num_hosts(hosts)
        self._end = end
        self._name = f"meshbook_{secrets.token_hex(4)}"
        self._keeper: Any = None
        # One thread of its own: in that of a notebook there is an event loop, where Monarch's futures complain.
        self._pool = ThreadPoolExecutor(1, "meshbook-monarch")

    def refusal(self, num_hosts: int) -> str:
        return "" if num_hosts <= self._num_hosts else "the HostMesh of Monarch has no more"

    def start(self, hosts: Sequence[int], summons: Summons, on_end: OnEnd) -> None:
        texts = {
            host: Summons((address,), summons.modules).text()
            for host, address in zip(hosts, summons.addresses, strict=True)
        }

        def place() -> None:
            try:
                self._own_keeper(on_end).start.call_one(self._hosts, texts).get(timeout=PLACE_SECONDS)
            except Exception as error:  # noqa: BLE001 - the rim: whatever Monarch raises is why there is no agent
                why = f"Monarch could not place an agent: {error}"
                self._reactor.schedule(lambda: on_end(hosts, why))

        self._pool.submit(place)

    def _own_keeper(self, on_end: OnEnd) -> Any:
        actors: Any = import_module("meshbook.runtime.engines.monarch_actors")
        everyone = range(self._num_hosts)
        # Which host has failed a report says in words only; those that answer live.
        told: Callable[[str], object] = lambda why: self._reactor.schedule(lambda: on_end(everyone, why))  # noqa: E731
        actors.on_failure[self._name] = told
        if self._keeper is None:
            self._keeper = import_module("monarch.actor").this_proc().spawn(self._name, actors.Keeper, self._name)
        return self._keeper

    def forget(self, host: int) -> None:
        if self._keeper is not None:  # that Monarch may have lost the host as well is of no interest
            self._pool.submit(lambda: self._keeper.kill.call_one(host).get(timeout=_END_SECONDS))

    def let_go(self) -> None:
        raise NotImplementedError("agents on hosts of Monarch end with its controller, which is this process")

    def close(self) -> None:
        try:
            closed = self._pool.submit(self._close)
        except RuntimeError:  # the interpreter ends: pools do nothing more, and no loop runs in this thread any more
            self._close()
        else:
            closed.result()
        self._pool.shutdown()

    def _close(self) -> None:
        if self._keeper is not None:
            import_module("meshbook.runtime.engines.monarch_actors").on_failure.pop(self._name, None)
            try:
                self._keeper.end.call_one(_END_SECONDS).get(timeout=2 * _END_SECONDS)
            except Exception as error:  # noqa: BLE001 - the rim: the job is to end whatever Monarch says
                print(f"meshbook: Monarch, at the end of its hosts: {error}", file=sys.stderr)
        self._end()
