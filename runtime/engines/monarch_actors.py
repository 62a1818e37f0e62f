"""The two Monarch actors that place agents: imported only where the package torchmonarch is (by `monarch`).

Monarch places and supervises one `Placer` a host, which starts the agent as a child process; nothing is forked in a
process of Monarch, and no user code runs in one. What agents say goes over our own link.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

_actor: Any = import_module("monarch.actor")

on_failure: dict[str, Callable[[str], object]] = {}
"""What the keeper of this name, in this process, calls with Monarch's report of a failure."""


class Placer(_actor.Actor):
    """Lives on each host."""

    def __init__(self) -> None:
        self._agent: subprocess.Popen[bytes] | None = None

    @_actor.endpoint
    def start(self, summons: Mapping[int, str]) -> None:
        """Start the agent of this host, if it is among these."""
        text = summons.get(_actor.current_rank().rank)
        if text is None:
            return
        self._end(0)
        self._agent = subprocess.Popen(
            [sys.executable, "-m", "meshbook.runtime.engines.remote_agent", "stdin"],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._agent.stdin is not None
        with self._agent.stdin as pipe:
            pipe.write(f"{text}\n".encode())

    @_actor.endpoint
    def end(self, seconds: float, host: int | None = None) -> None:
        """Wait until the agent has ended, which its controller has told to; kill it if it does not."""
        if host is None or host == _actor.current_rank().rank:
            self._end(seconds)

    def _end(self, seconds: float) -> None:
        agent, self._agent = self._agent, None
        if agent is not None:
            try:
                agent.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(agent.pid, signal.SIGKILL)
                agent.wait()


class Keeper(_actor.Actor):
    """Lives in the controller and owns the placers, so that their failures come here and do not end the notebook."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._procs: Any = None
        self._placers: Any = None

    @_actor.endpoint
    async def start(self, hosts: Any, summons: Mapping[int, str]) -> None:
        """Start agents on hosts of this host mesh, by their number in it."""
        if self._placers is None:
            self._procs = hosts.spawn_procs()
            self._placers = self._procs.spawn("meshbook_placers", Placer)
        await self._placers.start.call(dict(summons))

    @_actor.endpoint
    async def kill(self, host: int) -> None:
        """End the agent of a host that is lost."""
        await self._placers.end.call(0.0, host)

    @_actor.endpoint
    async def end(self, seconds: float) -> None:
        """End what was started."""
        if self._placers is not None:
            try:
                await self._placers.end.call(seconds)
            finally:
                await self._procs.stop()

    def __supervise__(self, failure: Any) -> bool:
        tell = on_failure.get(self._name)
        if tell is not None:
            tell(failure.report())
        return True
