"""The engine of this machine: ranks are processes here, forked from a zygote or executed afresh."""

from __future__ import annotations

import math
import os
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import cast

from msgspec.structs import replace

from ..errors import SpawnError
from ..system import leftovers
from ..system.cores import cores
from ..system.devices import num_gpus
from ..system.registry import registry
from ..wire.reactor import Reactor
from .agent import Agent
from .base import Crew, Listener, Party, refer
from .interpreter import Interpreter
from .openings import HeldPorts
from .preload import at_once, packaged
from .spec import OF_A_RANK, RankSpec, Seat, seats_here
from .starter import Exec, Starter, Zygote, ZygoteKey, zygote_key

WARM_SECONDS = 120.0
"""How long the imports of a zygote may take: on a file system far away, a minute is not unheard of."""

_CROWD = 4
"""Ranks of a core, above which it is sooner to wait until the zygote has imported all than to let each rank do it."""


class LocalEngine:
    """Makes crews of processes on this machine.

    `preload` names what the zygote imports: `module`, `module?` (if it is installed) or `module:function` (called
    after the import); a name that ends in `~` can wait, as in `zygote`. `python` is what ranks run in; the
    controller's own by default.

    Ranks that are to have packages imported (`RankSpec.preload`) get a zygote that has imported these too: so they have
    them after a restart at once, and in memory once. Those with a variable that libraries read at their import get one
    that was started with it.
    """

    name = "local"

    def __init__(self, reactor: Reactor, preload: Sequence[str] = (), python: Interpreter | None = None) -> None:
        self._reactor = reactor
        self._python = python or Interpreter()
        self.preload = tuple(preload)
        self._zygotes: dict[ZygoteKey, Zygote] = {}
        self._spoilt: list[Zygote] = []  # they have children, and fork no more
        self._unfit: dict[ZygoteKey, str] = {}  # packages that no zygote can have, with the reason
        self._exec = Exec(reactor, self._python)
        self._lock = threading.Lock()  # several threads may spawn

    def warm(self) -> None:
        """Start the zygote unless a fresh one is there; its imports go on in the background."""
        if sys.platform == "linux":
            with self._lock:
                self._fresh_zygote()

    def completed(self, seconds: float) -> bool:
        """Wait so long, at most, for the zygotes that there are to have imported what can wait; whether they have."""
        with self._lock:
            zygotes = [*self._zygotes.values()]
        return all(self._reactor.wait(zygote.complete, seconds) for zygote in zygotes)

    def _fresh_zygote(self, spec: RankSpec | None = None) -> Zygote:
        """The zygote for ranks like this, made from packages and settings as they are now."""
        env = _before_ranks(os.environ if spec is None else spec.env)
        key = self._key(spec)
        zygote = self._zygotes.get(key)
        if zygote is not None and not zygote.is_gone and not zygote.is_spoilt:
            return zygote
        if zygote is not None and zygote.is_spoilt:
            self._spoilt.append(self._zygotes.pop(key))
        self._drop_idle()
        preload = at_once(self.preload) if self._spoilt else self.preload
        imports = sorted([*preload, *key.modules], key=lambda each: ":" in each)  # calls look at all that was imported
        try:
            zygote = self._zygotes[key] = Zygote(self._reactor, imports, env, self._python, key)
        except OSError as error:  # no process, or no descriptor, is left
            raise SpawnError(f"the zygote, which forks ranks, cannot be started: {error}") from error
        leftovers.tidy()
        registry.note(zygote, {zygote.pid: "zygote"})
        return zygote

    def _key(self, spec: RankSpec | None) -> ZygoteKey:
        if spec is None:
            return zygote_key(_before_ranks(os.environ), self._python)
        packages = packaged(spec.preload, self._python.path_for(spec.path), spec.cwd)
        return zygote_key(_before_ranks(spec.env), self._python, packages)

    def _note_unfit(self, zygote: Zygote) -> None:
        with self._lock:
            if self._zygotes.get(zygote.key) is zygote:  # else we have closed it ourselves
                self._unfit[zygote.key] = zygote.trouble
                self._end(self._zygotes.pop(zygote.key))

    def _drop_idle(self) -> None:
        """Those without ranks, which would tell how these end, are not needed any more but for the usual one."""
        usual = self._key(None)
        for key, zygote in [*self._zygotes.items()]:
            if zygote.is_gone or not (zygote.num_children or zygote.num_waiting or key == usual):
                self._end(self._zygotes.pop(key))

    def _end(self, zygote: Zygote) -> None:
        zygote.close()
        registry.drop(zygote)

    def seats(self, axes: Mapping[str, int]) -> Sequence[Seat]:
        return seats_here(math.prod(axes.values()))

    def reseat(self, axes: Mapping[str, int], kept: Mapping[int, Seat]) -> Sequence[Seat]:
        return self.seats(axes)

    def num_gpus(self) -> int:
        return num_gpus()

    def why_not_shared(self, spec: RankSpec) -> str:
        return self._unfit.get(self._key(spec), "")

    def prepare(self, specs: Sequence[RankSpec], how: str = "auto") -> None:
        """Have a zygote that has done its imports, where ranks are forked."""
        self._starter(how, specs[0])

    def spawn(self, specs: Sequence[RankSpec], listener: Listener, how: str = "auto") -> Crew:
        return self.agent(specs, listener, how)

    def agent(
        self, specs: Sequence[RankSpec], listener: Listener, how: str = "auto", held: HeldPorts | None = None
    ) -> Agent:
        """Start these ranks. Waits for the zygote's imports where it forks. `held` as in `Agent`."""
        starter = lambda: self._starter(how, specs[0])  # noqa: E731 - asked again at each start
        return Agent(self._reactor, starter, specs, listener, self.preload, held)

    def _starter(self, how: str, spec: RankSpec) -> Starter:
        if how not in ("auto", "fork", "exec"):
            raise ValueError(f"spawn must be auto, fork or exec, not {how!r}")
        if how == "fork" and sys.platform != "linux":
            raise SpawnError(f"cannot fork: {why_exec()}; use --spawn exec")
        if how == "exec" or (how == "auto" and why_exec()):
            return self._exec
        plain = replace(spec, preload=())
        zygote = self._warm_zygote(plain if self.why_not_shared(spec) else spec)
        if zygote.trouble and zygote.key.modules:
            self._note_unfit(zygote)
            zygote = self._warm_zygote(plain)  # its ranks import for themselves
        if zygote.trouble and how == "fork":
            raise SpawnError(f"cannot fork: {zygote.trouble}; use --spawn exec")
        return self._exec if zygote.trouble else zygote

    def _warm_zygote(self, spec: RankSpec) -> Zygote:
        with self._lock:
            zygote = self._fresh_zygote(spec)
            zygote.num_waiting += 1
        try:
            is_crowd = spec.local_world_size > _CROWD * cores()
            is_warm = self._reactor.wait(zygote.complete if is_crowd else zygote.warmed, WARM_SECONDS)
        finally:
            with self._lock:
                zygote.num_waiting -= 1
        if not is_warm:
            raise SpawnError(
                f"the zygote (pid {zygote.pid}) has not done its imports within {WARM_SECONDS:g} s: "
                f"`py-spy dump --pid {zygote.pid}` tells where it is; without one: --spawn exec"
            )
        return self._warm_zygote(spec) if zygote.is_spoilt else zygote

    def introduce(self, one: Party, other: Party) -> None:
        agents = cast("tuple[Agent, Agent]", (one.crew, other.crew))
        if not all(agent.carries_fds for agent in agents):
            refer(one, other)
            return
        try:
            ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with ends[0], ends[1]:
                for agent, party, peer, end in zip(agents, (one, other), (other, one), ends, strict=True):
                    agent.introduce(party.rank, peer.mesh, peer.rank, end)
        except OSError:  # no descriptor is left here, or too many are on their way: they are not to wait for ever
            refer(one, other)

    def close(self) -> None:
        """End the zygotes."""
        for zygote in (*self._zygotes.values(), *self._spoilt):
            self._end(zygote)
        self._zygotes.clear()
        self._spoilt.clear()


def _before_ranks(env: Mapping[str, str]) -> dict[str, str]:
    """The environment of a rank without what tells it from the others."""
    return {name: value for name, value in env.items() if name not in OF_A_RANK}


def why_exec(platform: str = sys.platform) -> str:
    """Why ranks are not forked on this platform, in a few words; empty when they are.

    GPUs are no reason: a zygote never opens one, and forks nobody if what it has imported has.

    Example:
        >>> why_exec("linux"), why_exec("darwin")
        ('', 'forking is not safe on darwin')
    """
    if platform != "linux":
        return f"forking is not safe on {platform}"
    return ""
