"""The engine of this machine: ranks are processes here, forked from a zygote or executed afresh."""

from __future__ import annotations

import math
import os
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import cast

from .. import leftovers
from ..devices import num_gpus
from ..errors import SpawnError
from ..registry import registry
from ..wire.reactor import Reactor
from .agent import Agent
from .base import Crew, Listener, Party
from .interpreter import Interpreter, own_interpreter
from .spec import RankSpec, Seat, seats_here
from .starter import Exec, Starter, Zygote, zygote_key

WARM_SECONDS = 120.0
"""How long the imports of a zygote may take: on a file system far away, a minute is not unheard of."""


class LocalEngine:
    """Makes crews of processes on this machine.

    `preload` names what the zygote imports: `module`, `module?` (if it is installed) or `module:function` (called
    after the import). `python` is what ranks run in; the controller's own by default.
    """

    name = "local"

    def __init__(self, reactor: Reactor, preload: Sequence[str] = (), python: Interpreter | None = None) -> None:
        self._reactor = reactor
        self._python = python or own_interpreter()
        self.preload = tuple(preload)
        self._zygote: Zygote | None = None
        self._retired: list[Zygote] = []
        self._exec = Exec(reactor, self._python)
        self._lock = threading.Lock()  # `%load_ext` warms in the background while a cell may spawn

    def warm(self) -> None:
        """Start the zygote unless a fresh one is there; its imports go on in the background."""
        if sys.platform == "linux":
            with self._lock:
                self._fresh_zygote()

    def _fresh_zygote(self) -> Zygote:
        """The zygote; replaced when packages or settings changed since it was started."""
        env = dict(os.environ)
        zygote = self._zygote
        if zygote is not None and not zygote.is_gone and zygote.key == zygote_key(env, self._python):
            return zygote
        if zygote is not None:
            self._retired.append(zygote)  # its ranks live on, and it tells how they end
        self._drop_childless()
        self._zygote = Zygote(self._reactor, self.preload, env, self._python)
        leftovers.tidy()
        registry.note(self._zygote, {self._zygote.pid: "zygote"})
        return self._zygote

    def _drop_childless(self) -> None:
        for zygote in [z for z in self._retired if not z.num_children]:
            self._retired.remove(zygote)
            zygote.close()
            registry.drop(zygote)

    def seats(self, axes: Mapping[str, int]) -> Sequence[Seat]:
        return seats_here(math.prod(axes.values()))

    def reseat(self, axes: Mapping[str, int], kept: Mapping[int, Seat]) -> Sequence[Seat]:
        return self.seats(axes)

    def num_gpus(self) -> int:
        return num_gpus()

    def spawn(self, specs: Sequence[RankSpec], listener: Listener, how: str = "auto") -> Crew:
        return self.agent(specs, listener, how)

    def agent(
        self, specs: Sequence[RankSpec], listener: Listener, how: str = "auto", held: socket.socket | None = None
    ) -> Agent:
        """Start these ranks. Waits for the zygote's imports where it forks. `held` as in `Agent`."""
        starter = lambda: self._starter(how, specs[0].device)  # noqa: E731 - asked again at each start
        return Agent(self._reactor, starter, specs, listener, self.preload, held)

    def _starter(self, how: str, device: str) -> Starter:
        if how not in ("auto", "fork", "exec"):
            raise ValueError(f"spawn must be auto, fork or exec, not {how!r}")
        if how == "fork" and sys.platform != "linux":
            raise SpawnError(f"cannot fork: {why_exec(device)}; use --spawn exec")
        if how == "exec" or (how == "auto" and why_exec(device)):
            return self._exec
        with self._lock:
            zygote = self._fresh_zygote()
        if not self._reactor.wait(zygote.warmed, WARM_SECONDS):
            raise SpawnError(
                f"the zygote (pid {zygote.pid}) has not done its imports within {WARM_SECONDS:g} s: "
                f"`py-spy dump --pid {zygote.pid}` tells where it is; without one: --spawn exec"
            )
        if zygote.trouble and how == "fork":
            raise SpawnError(f"cannot fork: {zygote.trouble}; use --spawn exec")
        return self._exec if zygote.trouble else zygote

    def introduce(self, one: Party, other: Party) -> None:
        agents = cast("tuple[Agent, Agent]", (one.crew, other.crew))
        can_pass = all(agent.carries_fds for agent in agents)
        ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) if can_pass else (None, None)
        for agent, party, peer, end in zip(agents, (one, other), (other, one), ends, strict=True):
            agent.introduce(party.rank, peer.mesh, peer.rank, end)

    def close(self) -> None:
        """End the zygotes."""
        for zygote in [*self._retired, *([self._zygote] if self._zygote else [])]:
            zygote.close()
            registry.drop(zygote)
        self._zygote = None
        self._retired.clear()


def why_exec(device: str, platform: str = sys.platform) -> str:
    """Why ranks for this device are not forked, in a few words; empty when they are.

    Example:
        >>> why_exec("cuda", "linux")
        'CUDA after a fork from a zygote has not been tried on this machine'
        >>> why_exec("cpu", "linux")
        ''
    """
    if platform != "linux":
        return f"forking is not safe on {platform}"
    if device.startswith("cuda"):
        return "CUDA after a fork from a zygote has not been tried on this machine"
    return ""
